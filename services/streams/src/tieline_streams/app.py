"""The streams service put together: three connections to the broker, the sessions, the endpoints."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import structlog
from tieline_protocol import bus as broker
from tieline_protocol import leases, streams, subjects
from tieline_protocol.backpressure import Budget
from tieline_protocol.bus import Bus
from tieline_protocol.jetstream import Bucket
from tieline_protocol.leases import ProcessLease
from tieline_protocol.service import App, Service
from tieline_protocol.services import serving

from tieline_streams.config import Config
from tieline_streams.metrics import SESSIONS
from tieline_streams.ownership import Parts
from tieline_streams.sessions import Sessions

log = structlog.get_logger()


def make(config: Config) -> App:
    """What `service.run` and tests run."""

    @contextlib.asynccontextmanager
    async def app(service: Service) -> AsyncIterator[dict[str, Any]]:
        async with contextlib.AsyncExitStack() as stack:
            buses = [
                await stack.enter_async_context(
                    broker.connect(dataclasses.replace(config.nats, name=f"{config.nats.name}{suffix}"))
                )
                for suffix in ("", "-agent", "-workspace")
            ]
            for bus in buses:
                service.health.checks[bus.settings.name] = _connected(bus)
            service.health.notes["max_payload"] = _payload(buses[0], config)
            await _declare(buses[0], config)
            lease = await stack.enter_async_context(leases.holding(buses[0], "streams", config.limits.lease))
            service.health.checks["lease"] = lambda: None if lease.may_act() else "the lease is not confirmed"
            sessions = await stack.enter_async_context(Sessions(_parts(config, buses, lease), lease))
            await stack.enter_async_context(leases.watching(buses[0], sessions.ended))
            endpoints = {
                "open": sessions.open,
                "list": sessions.list,
                "get": sessions.get,
                "close": sessions.close,
                "rename": sessions.rename,
            }
            async with serving(buses[0], name="streams", version="0.1.0", endpoints=endpoints):
                try:
                    with SESSIONS.of(sessions):
                        yield {}
                finally:
                    sessions.stop_opening()

    return app


def _parts(config: Config, buses: list[Bus], lease: ProcessLease) -> Parts:
    control, agent, workspace = buses
    return Parts(
        config=config,
        bus=control,
        agent_bus=agent,
        workspace_bus=workspace,
        sessions=Bucket(control, subjects.BUCKET_SESSIONS),
        instances=Bucket(control, subjects.BUCKET_INSTANCES),
        owners=Bucket(control, subjects.BUCKET_OWNERS),
        processes=Bucket(control, subjects.BUCKET_PROCESSES),
        budget=Budget(config.limits.process_bytes),
        lease=lease,
    )


async def _declare(bus: Bus, config: Config) -> None:
    """Streams and buckets; a broker that is not ready yet is waited for."""
    if config.declare:
        limits = streams.StreamLimits(replicas=config.replicas, workspace_bytes=config.workspace_bytes)
        await streams.ensure(bus, limits)
    else:
        await streams.wait(bus)


def _connected(bus: Bus) -> Any:
    return lambda: None if bus.connected else "the broker is away"


def _payload(bus: Bus, config: Config) -> Any:
    def note() -> str | None:
        allowed = bus.max_payload
        if allowed >= config.limits.event_bytes:
            return None
        return f"the broker allows messages of {allowed:,} bytes: larger events become gaps"

    return note
