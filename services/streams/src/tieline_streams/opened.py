"""What whoever opens a session waits for: that it is ready, or why it is not."""

from __future__ import annotations

import asyncio

import structlog
from tieline_protocol.errors import TielineError, Unavailable

from tieline_streams.failing import as_unavailable
from tieline_streams.ownership import Ending, Ledger

log = structlog.get_logger()

_STORE = 1.0


class Opened:
    """Of one session."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._session = ledger.record.session
        self._told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self) -> None:
        """Until it is ready. Raises TielineError."""
        await asyncio.shield(self._told)

    def done(self) -> bool:
        return self._told.done()

    async def started(self, starting: asyncio.Task[None], ended: asyncio.Future[Ending]) -> str | None:
        """The start is over, or `ended` came before it. Returns why it failed, where it did so by itself."""
        if starting.cancelled():
            ending = ended.result()
            told = Unavailable(ending.reason or "the session was closed while it opened")
            await self.failed(told, ending.reason if ending.state == "failed" else None)
            return None
        if (exc := starting.exception()) is None:
            self._told.set_result(None)
            return None
        if not isinstance(exc, TielineError):
            log.error("a session could not be opened", session=self._session, exc_info=exc)
        why = as_unavailable(exc, self._session)
        await self.failed(why, why.message)
        return why.message

    async def failed(self, why: TielineError, reason: str | None) -> None:
        """`reason` is stored before anybody is told, so that whoever hears it finds it in the list."""
        if reason is not None and self._ledger.record.state not in ("closed", "failed"):
            try:
                async with asyncio.timeout(_STORE):
                    await self._ledger.write(state="failed", reason=reason)
            except TimeoutError:
                log.warning("that a session failed could not be stored yet", session=self._session)
        self.close(why)

    def close(self, why: TielineError) -> None:
        """Whoever waits still, waits in vain."""
        if not self._told.done():
            self._told.set_exception(as_unavailable(why, self._session))
            self._told.exception()  # nobody may be waiting for it
