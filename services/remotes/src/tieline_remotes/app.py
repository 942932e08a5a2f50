"""The wiring: read this and you know the service."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

from tieline_protocol import bus, leases, services, streams
from tieline_protocol.service import App, Service

from tieline_remotes.config import Config
from tieline_remotes.external import Externals
from tieline_remotes.service import Remotes


def make(config: Config) -> App:
    """The app of one replica."""

    @contextlib.asynccontextmanager
    async def app(service: Service) -> AsyncIterator[dict[str, Any]]:
        async with (
            bus.connect(config.bus) as connected,
            leased(connected, config) as lease,
            Externals(config.allowed) as externals,
            Remotes(connected, lease, externals).running(config.drain) as remotes,
            services.serving(
                connected,
                name="remotes",
                version=version("tieline-remotes"),
                description="Who exposes which functions, and the calls of them",
                endpoints={
                    "connect": remotes.registry.connect,
                    "disconnect": remotes.registry.disconnect,
                    "list": remotes.registry.list_remotes,
                    "resolve": remotes.registry.resolve,
                },
                raw={"call": remotes.call},
                limit=4096,
            ),
        ):
            service.health.checks["broker"] = lambda: None if connected.connected else "the broker is away"
            service.health.checks["lease"] = lambda: None if lease.may_act() else "the lease is not confirmed"
            yield {"process": lease.id}

    return app


@contextlib.asynccontextmanager
async def leased(connected: bus.Bus, config: Config) -> AsyncIterator[leases.ProcessLease]:
    """This replica's lease, once the buckets are there."""
    if config.declare:
        await streams.ensure(connected, streams.StreamLimits(replicas=config.replicas), update=False)
    else:
        await streams.wait(connected)
    async with leases.holding(connected, "remotes", config.lease) as lease:
        yield lease
