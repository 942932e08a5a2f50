"""An agent that is not known to be there: reached again after another owner, or started again.

What a socket that was away has missed: reconcile.py.
"""

from __future__ import annotations

import asyncio

import structlog
from tieline_protocol.errors import FateUnknown, TimedOut, Unavailable

from tieline_streams.config import Limits
from tieline_streams.journal import Journal
from tieline_streams.line import RUNNING, Line, agent_pid
from tieline_streams.ownership import Place
from tieline_streams.reconcile import Reconciler
from tieline_streams.sockets import Fatal

log = structlog.get_logger()

_AGAIN = 0.5
_HEALTH = 3.0


class Recovery:
    """Of one session in one epoch."""

    def __init__(
        self, session: str, journal: Journal, line: Line, reconciler: Reconciler, limits: Limits
    ) -> None:
        self._session = session
        self._journal = journal
        self._line = line
        self._reconciler = reconciler
        self._limits = limits

    async def reconnect_all(self, place: Place) -> None:
        """Health, both sockets, the agent's conversation: what another owner began goes on. Raises TielineError."""
        line = self._line
        if line.record is None:
            raise Fatal("the instance is gone")
        try:
            await (await line.reach(line.record, place)).healthy(min(_HEALTH, self._limits.health))
        except Fatal:
            raise
        except Unavailable as exc:
            if await place.executor.exists(line.record, self._session) is False:
                raise Fatal("the instance is gone") from exc
            log.warning("an instance cannot be reached yet", session=self._session, error=exc.message)
        self._reconciler.active = True
        await line.connect()
        while True:
            try:
                await self._resume(place)
                return
            except Fatal:
                raise
            except (
                Unavailable,
                FateUnknown,
                TimedOut,
            ) as exc:  # a socket broke meanwhile; it is being dialled
                log.info("an agent cannot be resumed yet", session=self._session, error=str(exc))
                await asyncio.sleep(_AGAIN)

    async def _resume(self, place: Place) -> None:
        line = self._line
        assert line.record is not None
        status = await line.status()
        running, pid = status.get("agent_status") in RUNNING, agent_pid(status)
        if running and (pid is None or line.record.agent_pid in (None, pid)):
            return
        self._journal.agent_exited()
        if not running:
            await line.start_agent(place)
            if line.manager is not None:
                line.manager.redial_workspace()
        await line.load()
        await line.remember_agent()
