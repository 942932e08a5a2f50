"""A control server on another machine, through tunnels: one while the control server is asked, one for each session
that this process owns. Everything above sees a local port; the record names the instance as it is seen over there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from tieline_protocol.errors import TielineError
from tieline_protocol.messages import InstanceRecord

from tieline_streams.config import TunnelExecutor
from tieline_streams.executors import Wanted
from tieline_streams.executors.forward import Forward, Way, end_left
from tieline_streams.executors.static import Static


class Tunnel:
    def __init__(self, settings: TunnelExecutor) -> None:
        self._settings = settings
        self._forwards: dict[str, Forward] = {}

    async def open(self, wanted: Wanted) -> InstanceRecord:
        async with self._control(wanted.session) as there:
            record = await there.open(wanted)
        port = urlsplit(record.url).port
        host = self._settings.host
        named = f"[{host}]" if ":" in host else host
        return record.model_copy(update={"url": f"http://{named}:{port}"})

    async def exists(self, record: InstanceRecord, session: str) -> bool | None:
        try:
            async with self._control(session) as there:
                return await there.exists(record, session)
        except TielineError:
            return None

    async def close(self, record: InstanceRecord | None, session: str) -> None:
        await self.leave(session)
        async with self._control(session) as there:
            await there.close(record, session)

    async def reach(self, record: InstanceRecord, session: str) -> str:
        if session not in self._forwards:
            await end_left(session)
            forward = self._forwards[session] = self._forward(session, urlsplit(record.url).port or 0)
            await forward.start()
        return self._forwards[session].url

    async def leave(self, session: str) -> None:
        forward = self._forwards.pop(session, None)
        if forward is not None:
            await forward.stop()

    @contextlib.asynccontextmanager
    async def _control(self, session: str) -> AsyncIterator[Static]:
        """The control server over there. Raises Unavailable."""
        async with self._forward(session, self._settings.port) as forward:
            await forward.ready()
            yield Static(forward.url, self._settings.token_file)

    def _forward(self, session: str, port: int) -> Forward:
        settings = self._settings
        way = Way(
            settings.command, session, settings.host, port, settings.check_every, settings.check_timeout
        )
        return Forward(way)
