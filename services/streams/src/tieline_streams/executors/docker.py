"""A container of the session's own, with our daemon in it, that ends with its session.

It carries the session's id as a label, by which every process of ours finds it again; nothing else is remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Any

import structlog
from tieline_protocol.errors import TielineError, Unavailable
from tieline_protocol.messages import InstanceRecord

from tieline_streams.config import DockerExecutor
from tieline_streams.executors import Wanted, control
from tieline_streams.executors.engine import Engine, Missing

log = structlog.get_logger()

LABEL = "dev.tieline.session"
_READY = 30.0
_LOOK = 0.1
_GRACE = 12  # s; an agent that does not end when it is asked takes the daemon 9 s
_UNDO = 5.0


class Docker:
    def __init__(self, settings: DockerExecutor) -> None:
        self._settings = settings
        self._engine = Engine(settings.socket)

    async def open(self, wanted: Wanted) -> InstanceRecord:
        nonce = secrets.token_hex(16)
        making = asyncio.create_task(self._make(wanted, nonce), name=f"container of {wanted.session}")
        try:
            id = await asyncio.shield(making)
            url = await self._started(id)
            token = await control.handshake(url, nonce)
            record = await control.create(url, token, wanted)
            return record.model_copy(update={"url": await self._address(id, self._settings.instance_port)})
        except BaseException:
            await self._undo(making, wanted.session)
            raise

    async def exists(self, record: InstanceRecord, session: str) -> bool | None:
        try:
            found = await self._engine.labelled(LABEL, session)
        except TielineError:
            return None
        return any(one.get("State") == "running" for one in found)

    async def close(self, record: InstanceRecord | None, session: str) -> None:
        for one in await self._engine.labelled(LABEL, session):
            await self._engine.remove(str(one.get("Id")), _GRACE)

    async def reach(self, record: InstanceRecord, session: str) -> str:
        """Where the container is now; where it was, when that cannot be said."""
        try:
            found = await self._engine.labelled(LABEL, session)
            return await self._address(str(found[0].get("Id")), self._settings.instance_port)
        except (TielineError, IndexError) as exc:
            log.info("a container is not found", session=session, error=str(exc))
            return record.url

    async def leave(self, session: str) -> None:
        pass

    async def _make(self, wanted: Wanted, nonce: str) -> str:
        try:
            return await self._engine.create(
                f"tieline-{wanted.session}", container(self._settings, wanted, nonce)
            )
        except Missing as exc:
            raise Unavailable(f"{exc.message} (the image must be on the engine's machine)") from exc

    async def _started(self, id: str) -> str:
        """The control server's URL, once it answers. Raises Unavailable."""
        await self._engine.start(id)
        until = asyncio.get_running_loop().time() + _READY
        while True:
            url = await self._address(id, self._settings.port)
            if await control.answers(url, 1):
                return url
            if asyncio.get_running_loop().time() > until:
                raise Unavailable(f"the daemon in the container is not ready after {_READY:g} s")
            await asyncio.sleep(_LOOK)

    async def _address(self, id: str, port: int) -> str:
        return address(await self._engine.inspect(id), self._settings.network, port)

    async def _undo(self, making: asyncio.Task[str], session: str) -> None:
        """Nobody waits for it any more, and the engine may be making it."""
        with contextlib.suppress(TielineError, TimeoutError):
            async with asyncio.timeout(_UNDO):
                await asyncio.wait([making])
                for one in await self._engine.labelled(LABEL, session):
                    await self._engine.remove(str(one.get("Id")), 1)
        making.cancel()
        await asyncio.gather(making, return_exceptions=True)


def container(settings: DockerExecutor, wanted: Wanted, nonce: str) -> dict[str, Any]:
    """What the engine is asked for."""
    ports = [f"{port}/tcp" for port in (settings.port, settings.instance_port)]
    published = (
        {}
        if settings.network is not None
        else {"PortBindings": {port: [{"HostIp": "127.0.0.1", "HostPort": ""}] for port in ports}}
    )
    environment = {
        "AGENTCTL_BOOTSTRAP_NONCE": nonce,
        "AGENTCTL_LISTEN_HOST": "0.0.0.0",
        "AGENTCTL_PORT": str(settings.port),
        "AGENTCTL_INSTANCE_PORT_BASE": str(settings.instance_port),
        "AGENTCTL_INSTANCE_PORT_MAX": str(settings.instance_port),
        "KANDEV_ACP_IDLE_TIMEOUT": "0",
        **settings.env,
    }
    return {
        "Image": settings.image,
        **({"Cmd": list(settings.command)} if settings.command is not None else {}),
        "User": settings.user,
        "WorkingDir": str(wanted.workspace),
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "Labels": {LABEL: wanted.session},
        "ExposedPorts": {port: {} for port in ports},
        "HostConfig": {
            "Init": True,  # what a shell leaves behind is reaped
            **settings.host_config,
            "Binds": [*settings.host_config.get("Binds", []), f"{wanted.workspace}:{wanted.workspace}"],
            **published,
            **({"NetworkMode": settings.network} if settings.network is not None else {}),
        },
    }


def address(inspected: dict[str, Any], network: str | None, port: int) -> str:
    """The URL of a port of a running container. Raises Unavailable."""
    state = inspected.get("State") or {}
    if not state.get("Running"):
        why = state.get("Error") or f"exit code {state.get('ExitCode')}"
        raise Unavailable(f"the session's container does not run: {why}")
    net = inspected.get("NetworkSettings") or {}
    if network is not None:
        host, number = ((net.get("Networks") or {}).get(network) or {}).get("IPAddress"), port
    else:
        published = ((net.get("Ports") or {}).get(f"{port}/tcp") or [{}])[0]
        host, number = "127.0.0.1", published.get("HostPort")
    if not host or not number:
        raise Unavailable(f"the session's container does not publish port {port}")
    return f"http://{host}:{number}"
