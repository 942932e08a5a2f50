"""The wiring: read this and you know the service."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator, Sequence
from importlib.metadata import version
from typing import Any

from tieline_protocol import backoff, calling, leases, services, streams, subjects
from tieline_protocol import bus as broker
from tieline_protocol.bus import Bus
from tieline_protocol.errors import NoResponders
from tieline_protocol.jetstream import Bucket
from tieline_protocol.remotes import RemoteFunction
from tieline_protocol.service import App as ServiceApp
from tieline_protocol.service import Service

from tieline_agent import tools
from tieline_agent.agent import Agent
from tieline_agent.config import Config
from tieline_agent.expert import ExpertAgent
from tieline_agent.metrics import THREADS
from tieline_agent.model import Model
from tieline_agent.parts import Parts
from tieline_agent.records import Records
from tieline_agent.threads import Threads
from tieline_agent.tools import OnProgress, RemoteToolSpec

_RESOLVE = 10.0  # seconds in which a rolling remotes service must be back


class App:
    """What the expert agent knows of the rest of the system: the remotes of its users."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def getRemoteTools(self, user_id: str, remotes: Sequence[str]) -> list[RemoteToolSpec]:
        """The tools of a user's remotes, in the order of the names; one that is not connected gives none.

        Raises TielineError where the remotes service cannot be asked.
        """

        async def call(
            remotename: str,
            function: str,
            args: dict[str, Any],
            timeout: float,
            on_progress: OnProgress | None = None,
            traceparent: str | None = None,
        ) -> Any:
            return await calling.call(
                self._bus,
                user_id,
                remotename,
                function,
                args,
                timeout_ms=max(int(timeout * 1000), 1),
                on_progress=on_progress,
                traceparent=traceparent,
            )

        found = await self._resolved(user_id, list(remotes))
        return tools.specs(
            (
                (remote["remotename"], [RemoteFunction.model_validate(one) for one in remote["functions"]])
                for remote in found["remotes"]
            ),
            call,
        )

    async def _resolved(self, user_id: str, remotes: list[str]) -> dict[str, Any]:
        waits = backoff.delays(random.random, first=0.05, most=1.0)
        until = asyncio.get_running_loop().time() + _RESOLVE
        while True:
            try:
                return await calling.resolve(self._bus, user_id, remotes)
            except NoResponders:
                if asyncio.get_running_loop().time() > until:
                    raise
            await asyncio.sleep(next(waits))


def make(config: Config) -> ServiceApp:
    """The app of one replica."""

    @contextlib.asynccontextmanager
    async def app(service: Service) -> AsyncIterator[dict[str, Any]]:
        async with (
            broker.connect(config.nats) as bus,
            broker.connect(dataclasses.replace(config.nats, name=f"{config.nats.name}-threads")) as log_bus,
            _leased(bus, config) as lease,
            Model(config.model) as model,
        ):
            agent = Agent(ExpertAgent(App(bus), model, config.limits))
            owners = Bucket(bus, subjects.BUCKET_OWNERS)
            parts = Parts(config, bus, log_bus, Records(bus), owners, lease, agent)
            async with (
                Threads(parts) as threads,
                leases.watching(bus, threads.ended),
                services.serving(
                    bus,
                    name="agent",
                    version=version("tieline-agent"),
                    description="Chat threads, and the expert agent that answers them",
                    endpoints={
                        "create": threads.create,
                        "list": threads.list,
                        "get": threads.get,
                        "rename": threads.rename,
                        "delete": threads.delete,
                        "message": threads.message,
                        "cancel": threads.cancel,
                    },
                    limit=1024,
                ),
            ):
                for each in (bus, log_bus):
                    service.health.checks[each.settings.name] = _connected(each)
                service.health.checks["lease"] = lambda: (
                    None if lease.may_act() else "the lease is not confirmed"
                )
                with THREADS.of(threads):
                    yield {"process": lease.id, "model": config.model.model}

    return app


@contextlib.asynccontextmanager
async def _leased(bus: Bus, config: Config) -> AsyncIterator[leases.ProcessLease]:
    """This replica's lease, once the streams and buckets are there."""
    if config.declare:
        await streams.ensure(bus, streams.StreamLimits(replicas=config.replicas), update=False)
    else:
        await streams.wait(bus)
    async with leases.holding(bus, "agent", config.lease) as lease:
        yield lease


def _connected(bus: Bus) -> Any:
    return lambda: None if bus.connected else "the broker is away"
