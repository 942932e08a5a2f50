"""What this process had read of a session and not confirmed when its lease expired.

If it takes the session again itself, nobody had it in between, and all of that is published after all, in the epoch in
which it was read. If somebody else took it, it is forgotten, and the opening of that owner says that something may be
missing.
"""

from __future__ import annotations

import asyncio

import structlog

from tieline_streams.journal import Journal
from tieline_streams.ownership import Tenure

log = structlog.get_logger()


class Left:
    """Of one session: the logs of `epoch`, and the right that was lost to them. `all`: nothing came beside that."""

    def __init__(self, journal: Journal, tenure: Tenure, epoch: int, *, all: bool) -> None:
        self._journal = journal
        self._tenure = tenure
        self.epoch = epoch
        self._all = all

    async def settle(self, within: float) -> bool:
        """The session is ours again, over the very write of `epoch`. Returns whether all that came is stored."""
        self._tenure.lost = False
        publishing = self._journal.publishing()
        settling = asyncio.create_task(self._journal.settled(), name="settle what was left")
        try:
            await asyncio.wait([settling, *publishing], timeout=within, return_when=asyncio.FIRST_COMPLETED)
            settled = settling.done()
        finally:
            self._tenure.lost = True
            for task in (settling, *publishing):
                task.cancel()
            await asyncio.gather(settling, *publishing, return_exceptions=True)
            self._journal.forget()
        log.info("what was left of a session is settled", epoch=self.epoch, settled=settled)
        return settled and self._all

    def forget(self) -> None:
        """It is somebody else's session."""
        self._journal.forget()
