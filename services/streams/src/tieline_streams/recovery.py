"""An agent that is not known to be there: reached again after another owner, or started again after it has ended.

An agent that has ended is started by whoever needs it next, so one that cannot live is not started again and again.

What a socket that was away has missed: reconcile.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog
from tieline_protocol.errors import Code, FateUnknown, Refused, TimedOut, Unavailable

from tieline_streams.config import Limits
from tieline_streams.dialling import Fatal
from tieline_streams.journal import Journal
from tieline_streams.line import RUNNING, Line, agent_pid
from tieline_streams.ownership import Place

log = structlog.get_logger()

_AGAIN = 0.5
_HEALTH = 3.0
_BUSY = "the agent is being started again, try again"

Say = Callable[[str | None], Awaitable[None]]
How = Callable[[Place], Coroutine[Any, Any, None]]


class Recovery:
    """Of one session in one epoch. `say` tells why there is no agent, or (None) that there is one again.

    `gone`: the agent has ended, and nobody has needed it since.
    """

    def __init__(self, session: str, journal: Journal, line: Line, say: Say, limits: Limits) -> None:
        self._session = session
        self._journal = journal
        self._line = line
        self._say = say
        self._limits = limits
        self._work: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()  # no agent is being started, or tells its conversation again
        self._settled.set()
        self.gone = False

    async def wait(self, within: float) -> None:
        """Until an agent may be asked: what it says while it loads its conversation is old. Raises Unavailable."""
        try:
            async with asyncio.timeout(max(within, 0)):
                await self._settled.wait()
        except TimeoutError as exc:
            raise Unavailable(_BUSY) from exc

    # After another owner

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
        await line.connect()
        while True:
            try:
                await self._have(self._with_conversation, place)
                await self._say(None)
                return
            except Fatal:
                raise
            except Refused as exc:
                self.gone = True
                await self._say(f"the agent has ended, and its conversation cannot go on: {exc.message}")
                return
            except (Unavailable, FateUnknown, TimedOut) as exc:
                # A socket broke meanwhile; it is being dialled.
                log.info("an agent cannot be resumed yet", session=self._session, error=str(exc))
                await asyncio.sleep(_AGAIN)

    async def _have(self, how: How, place: Place) -> None:
        self._settled.clear()
        try:
            await how(place)
            self.gone = False
        finally:
            self._settled.set()

    async def _with_conversation(self, place: Place) -> None:
        line = self._line
        assert line.record is not None
        status = await line.status()
        running, pid = status.get("agent_status") in RUNNING, agent_pid(status)
        if running and (pid is None or line.record.agent_pid in (None, pid)):
            return
        self._journal.agent_exited()
        if not running:
            await self._start(place)
        await line.load()
        await line.remember_agent()

    async def _start(self, place: Place) -> None:
        await self._line.start_agent(place)
        if self._line.manager is not None:
            self._line.manager.redial_workspace()

    # After the agent's end

    async def lost(self, code: int | None) -> None:
        """It has ended: what was open with it ends too, and whoever looks at the session sees it."""
        self._journal.agent_exited()
        if self.gone or not self._settled.is_set():
            return
        self.gone = True
        how = "" if code is None else f" with code {code}"
        await self._say(f"the agent has ended{how}; it is started again when it is needed")

    async def revive(self, place: Place, within: float) -> None:
        """Have an agent with its conversation again. Raises TielineError; it goes on when nobody waits any more."""
        await self._once(self._with_conversation, place, within)

    async def restart(self, place: Place, within: float) -> None:
        """Have an agent without one, for whoever brings it another. Raises TielineError."""
        await self._once(self._without, place, within)

    async def _without(self, place: Place) -> None:
        if (await self._line.status()).get("agent_status") not in RUNNING:
            await self._start(place)
        await self._line.initialize()

    async def _once(self, how: How, place: Place, within: float) -> None:
        if self._work is None:
            self._work = asyncio.create_task(self._revived(how, place), name=f"agent of {self._session}")
            self._work.add_done_callback(lambda done: done.cancelled() or done.exception())
        work = self._work
        await asyncio.wait([work], timeout=within)
        if not work.done() or work.cancelled():
            raise Unavailable(_BUSY)
        try:
            work.result()
        except Fatal:
            raise
        except Refused as exc:
            message = f"{exc.message}; agent.session.new begins another conversation"
            raise Refused(Code.UNAVAILABLE, message, details=exc.details) from exc

    async def _revived(self, how: How, place: Place) -> None:
        try:
            await self._have(how, place)
            await self._say(None)
        finally:
            self._work = None

    async def close(self) -> None:
        """The session ends."""
        if (work := self._work) is not None:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
