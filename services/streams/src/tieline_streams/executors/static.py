"""A control server that somebody else runs: open makes an instance there, close deletes it."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from tieline_protocol.errors import TielineError, Unavailable
from tieline_protocol.messages import InstanceRecord

from tieline_streams.executors import Direct, Wanted, control

_UNDO = 1.5


class Static(Direct):
    def __init__(self, control_url: str, token_file: Path | None) -> None:
        self._url = control_url
        self._token_file = token_file

    async def open(self, wanted: Wanted) -> InstanceRecord:
        making = asyncio.create_task(
            control.create(self._url, self._token(), wanted), name=f"make {wanted.session}"
        )
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            await self._undo(making, wanted.session)
            raise

    async def _undo(self, making: asyncio.Task[InstanceRecord], session: str) -> None:
        """Nobody waits for it any more, and the daemon may have it already."""
        with contextlib.suppress(TielineError, TimeoutError):
            async with asyncio.timeout(_UNDO):
                await self.close(await making, session)
        making.cancel()
        await asyncio.gather(making, return_exceptions=True)

    async def exists(self, record: InstanceRecord, session: str) -> bool | None:
        return await control.exists(self._url, self._token(), record.instance)

    async def close(self, record: InstanceRecord | None, session: str) -> None:
        token, instance = (record.token, record.instance) if record else (self._token(), session)
        await control.delete(self._url, token, instance)

    def _token(self) -> str:
        path = self._token_file
        if path is None:
            return ""
        try:
            return path.read_text().strip()
        except OSError as exc:
            raise Unavailable(f"the daemon's token cannot be read: {exc.strerror}") from exc
