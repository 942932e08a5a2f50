"""What is open when a session ends, or goes to its next owner: ended in the logs first, then in the world; or left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import structlog
from tieline_protocol.errors import TielineError

from tieline_streams.agent_tools import AgentTools
from tieline_streams.journal import Journal
from tieline_streams.line import Line
from tieline_streams.operations import Operations
from tieline_streams.ownership import Ending, Ledger, Place

log = structlog.get_logger()

_EACH = 15.0
_STOP = 12.0


class End:
    """Of one session in one epoch. `begun`: there may be an instance, or sockets were up before."""

    def __init__(
        self,
        ledger: Ledger,
        journal: Journal,
        tools: AgentTools,
        operations: Operations,
        line: Line,
        place: Place | None,
        *,
        begun: bool,
    ) -> None:
        self._ledger = ledger
        self._journal = journal
        self._tools = tools
        self._operations = operations
        self._line = line
        self._place = place
        self._begun = begun

    async def hand_over(self) -> None:
        """Read all that is on its way, so that nothing is lost, and leave what is open open."""
        self._tools.leave()
        await self._operations.close()
        await self._line.disconnect(tell=False)
        self._journal.release_shell(None)

    async def wind_down(self, ending: Ending) -> None:
        """End everything, the instance too."""
        journal = self._journal
        reason = "cancelled" if ending.state == "closed" else "disconnected"
        self._tools.close("the session has ended")
        journal.tell(journal.turns.end_all(reason, asyncio.get_running_loop().time()))
        if journal.permissions.clear():
            journal.agent.say(journal.permissions.event())
        await self._operations.close()
        await self._line.disconnect(tell=self._line.manager is not None or self._begun)
        if journal.processes.clear():
            journal.workspace.say(journal.processes.event())
        await self._close_instance(ending)

    async def _close_instance(self, ending: Ending) -> None:
        line, place = self._line, self._place
        record, session = line.record, self._ledger.record.session
        if line.instance is not None:
            if ending.state == "closed":
                await self._try(line.instance.do("stop", {}, _STOP), "the agent could not be stopped")
            await line.close_client()
        if place is not None and (record is not None or self._begun):
            await self._try(place.executor.close(record, session), "an instance could not be closed")
            await self._try(self._ledger.forget_place(), "an instance's record could not be deleted")

    async def _try(self, work: Awaitable[None], what: str) -> None:
        try:
            async with asyncio.timeout(_EACH):
                await work
        except (TielineError, TimeoutError) as exc:
            log.warning(what, session=self._ledger.record.session, error=str(exc))
