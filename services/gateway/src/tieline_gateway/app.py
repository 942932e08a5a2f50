"""The wiring: three broker connections (requests and agent logs, workspace logs, reads), the gateway, the server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import Any

from tieline_protocol import bus, leases, services
from tieline_protocol.bus import Bus, BusSettings
from tieline_protocol.service import App, Service
from websockets.asyncio.server import serve

from tieline_gateway import metrics
from tieline_gateway.config import Config
from tieline_gateway.gateway import Gateway
from tieline_gateway.sockets import Socket, choose_subprotocol
from tieline_gateway.told import told


def app(config: Config) -> App:
    """The gateway as a service."""

    def enter(service: Service) -> AbstractAsyncContextManager[dict[str, Any]]:
        return _running(config, service)

    return enter


@contextlib.asynccontextmanager
async def _running(config: Config, service: Service) -> AsyncIterator[dict[str, Any]]:
    async with (
        bus.connect(_settings(config, service.name)) as control,
        bus.connect(_settings(config, f"{service.name}-workspace")) as bulk,
        bus.connect(_settings(config, f"{service.name}-reads")) as reads,
        leases.holding(control, "gateway", config.lease) as lease,
    ):
        for connection in (control, bulk, reads):
            service.health.checks[connection.settings.name] = _connected(connection)
        service.health.checks["lease"] = lambda: None if lease.may_act() else "the lease is not confirmed"
        service.health.notes["broker"] = _payload(config, control)
        async with asyncio.TaskGroup() as group:
            gateway = Gateway(config, control, bulk, reads, lease, group)
            await gateway.users.listen()
            sweeper = gateway.start(gateway.sweep(), "once a second")
            try:
                async with (
                    gateway.remotes.listening(),
                    gateway.callers.listening(),
                    services.serving(
                        control,
                        name="gateway",
                        version=version("tieline-gateway"),
                        description="The connections of frontends",
                        endpoints={},
                        told=lambda: told(lease.id, gateway.viewers, _answered()),
                    ),
                    serve(
                        gateway.handle,
                        config.host,
                        config.port,
                        create_connection=Socket,
                        process_request=gateway.process_request,
                        select_subprotocol=choose_subprotocol,
                        compression=None,
                        server_header=None,
                        ping_interval=config.limits.ping_seconds,
                        ping_timeout=config.limits.pong_seconds,
                        close_timeout=config.limits.close_seconds,
                        max_size=config.limits.frame_bytes,
                    ) as server,
                ):
                    host, port = server.sockets[0].getsockname()[:2]
                    try:
                        yield {"url": f"ws://{_shown(host)}:{port}/ws"}
                    finally:
                        await gateway.drain()
            finally:
                sweeper.cancel()
                gateway.end()


def _settings(config: Config, name: str) -> BusSettings:
    return BusSettings(
        config.nats_url,
        name,
        user=config.nats_user,
        password=config.nats_password,
        password_file=config.nats_password_file,
        inbox_prefix=config.nats_inbox_prefix,
    )


def _answered() -> list[Any]:
    return [sample for metric in metrics.SECONDS.collect() for sample in metric.samples]


def _connected(connection: Bus) -> Callable[[], str | None]:
    return lambda: None if connection.connected else "the broker is away"


def _payload(config: Config, connection: Bus) -> Callable[[], str | None]:
    wanted = config.limits.frame_bytes
    return lambda: (
        None
        if connection.max_payload > wanted
        else f"the broker takes {connection.max_payload:,} bytes, less than a frame may have ({wanted:,})"
    )


def _shown(host: str) -> str:
    return "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
