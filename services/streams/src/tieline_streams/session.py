"""A session that this process owns, from its opening or taking to its end or release.

What its sockets say and what is published: journal.py. What its owner is asked to do: commands.py. Its instance:
line.py. What another owner began: recovery.py. What is open at the end: ending.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any, Literal

import structlog
from tieline_protocol import tracing
from tieline_protocol.errors import TielineError, Unavailable
from tieline_protocol.messages import InstanceRecord, SessionRecord, SessionState
from tieline_protocol.ownership import end_of, insist
from tieline_protocol.tracing import Span

from tieline_streams import history
from tieline_streams.agent_tools import AgentTools
from tieline_streams.ending import End
from tieline_streams.failing import explained
from tieline_streams.instance import Instance
from tieline_streams.journal import Journal
from tieline_streams.line import Line
from tieline_streams.opened import Opened
from tieline_streams.operations import Operations
from tieline_streams.ownership import Ending, Found, Ledger, Parts, Place, Taken, Tenure
from tieline_streams.reconcile import Reconciler
from tieline_streams.recovery import Recovery
from tieline_streams.remote_tools import RemoteTools
from tieline_streams.stream_manager import StreamManager
from tieline_streams.taking import Aim

log = structlog.get_logger()


class Session:
    """`epoch` is the revision of the write that took the session. `run` is its life.

    `taken`: another owner had it. Without a `place` its executor is not configured any more.
    """

    def __init__(
        self, parts: Parts, record: SessionRecord, epoch: int, place: Place | None, taken: Taken | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        self.tenure = Tenure(parts.lease)
        parts = replace(parts, lease=self.tenure)
        self.id = record.session
        self.user = record.user
        self.place = place
        self.limits = parts.config.limits
        self.ledger = Ledger(parts, record, epoch)
        self.journal = Journal(parts, record.user, record.session, epoch)
        self.operations = Operations(self.journal.workspace.say)
        remotes = RemoteTools(parts.bus, record.user, record.remotes, epoch)
        self.tools = AgentTools(self.journal, remotes)
        self._asked_by = tracing.current()
        self.opened = Opened(self.ledger)
        self.ready = asyncio.Event()  # it has begun, or cannot
        self.finished = asyncio.Event()
        self.gone = asyncio.Event()  # nobody is served here any more: the record answers for it
        self.unused = Counter[str]()  # frames in each socket that came after the right to use them was lost
        self._parts = parts
        self._taken = taken
        self.taken = taken is not None
        self._ending: asyncio.Future[Ending] = loop.create_future()
        self._reconciler = Reconciler(
            self.id,
            self.journal,
            place,
            self._broken,
            lambda code: self.recovery.lost(code),
            self.limits.slow_retry,
        )
        self.line = Line(
            parts, self.ledger, self.journal, self.tools, epoch, self._broken, self._reconciler.up
        )
        self._reconciler.line = self.line
        self.recovery = Recovery(self.id, self.journal, self.line, self._agent_is, self.limits)
        self._end = End(
            self.ledger, self.journal, self.tools, self.operations, self.line, place, begun=self.taken
        )

    @property
    def manager(self) -> StreamManager | None:
        return self.line.manager

    @property
    def instance(self) -> Instance | None:
        return self.line.instance

    def _broken(self, why: str) -> None:
        self.end("failed", why)

    def may_act(self) -> bool:
        """Whether this process is certain to own the session; asked at each use."""
        return self.tenure.may_act()

    @property
    def record(self) -> SessionRecord:
        return self.ledger.record

    @property
    def state(self) -> SessionState:
        return self.ledger.record.state

    def end(self, state: Literal["closed", "failed", "released"], reason: str | None = None) -> None:
        """Begin the end; the first reason counts."""
        if not self._ending.done():
            self._ending.set_result(Ending(state, reason))

    async def set_state(self, state: SessionState, reason: str | None = None) -> None:
        """Say it in the log, then in the record."""
        event: dict[str, Any] = {"type": "session", "state": state}
        if reason is not None:
            event["reason"] = reason
        self.journal.agent.say(event)
        wanted = "closed" if state in ("closing", "closed") else self.record.wanted
        await self.ledger.write(state=state, reason=reason, wanted=wanted)

    async def _agent_is(self, gone: str | None) -> None:
        """The session goes on without its agent, or with it again."""
        if self.state == "ready" and not self._ending.done() and gone != self.record.reason:
            await self.set_state("ready", gone)

    # Life

    async def run(self) -> None:
        """From the opening to the release. Commands are served by the caller meanwhile.

        Cancelled, or broken by a mistake of ours, it leaves all as it is: the next owner goes on.
        """
        reconciling = asyncio.create_task(self._reconciler.run(), name=f"reconcile {self.id}")
        working = [*self.journal.tasks(), reconciling]
        living = asyncio.create_task(self._live(), name=f"session {self.id}")
        try:
            await asyncio.wait([*working, living], return_when=asyncio.FIRST_COMPLETED)
            for task in working:
                if task.done():
                    task.result()  # it never ends by itself: this raises
            await living
        except Exception:
            if not self.opened.done():
                failed = "something broke" if self._taken is None else None
                await self.opened.failed(Unavailable("something broke"), failed)
            raise
        finally:
            self.cut()
            for task in [living, *working]:
                task.cancel()
            await asyncio.gather(living, *working, return_exceptions=True)
            await self.recovery.close()
            await self.line.disconnect(tell=False)
            await self.line.close_client()
            if self.place is not None:
                await self.place.executor.leave(self.id)
            self.opened.close(Unavailable("the session ended"))
            self.ready.set()
            self.finished.set()

    def cut(self) -> None:
        """Use and write nothing any more; sockets that are still open are dropped without a word."""
        self.unused.update(self.line.cut())

    async def _live(self) -> None:
        await self._begin()
        starting = asyncio.create_task(self._start(), name=f"start {self.id}")
        waiting: set[asyncio.Future[Any]] = {starting, self._ending}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            if (why := await self.opened.started(starting, self._ending)) is not None:
                self.end("failed", why)
            self.ready.set()
            ending = await self._ending
        finally:
            starting.cancel()
        await self._finish(ending)

    async def _begin(self) -> None:
        """The openings of the epoch. What the logs say is read after them: then they are complete."""
        taken, bus = self._taken, self._parts.bus
        if taken is None:
            await self.journal.open(Found())
            return
        clean = taken.clean or (taken.settle is not None and await taken.settle(self.limits.drain))
        agent, workspace = [
            await insist(lambda log=log: end_of(bus, self.user, self.id, log))  # type: ignore[misc]
            for log in ("agent", "workspace")
        ]
        await self.journal.open(Found(agent, workspace, clean))
        self.journal.restore(recovered := await insist(lambda: history.read(bus, self.user, self.id)))
        entry = await insist(lambda: self._parts.instances.get(self.id))
        self.line.record = InstanceRecord.decode(entry.value) if entry is not None else None
        self.journal.say_sets()
        self.operations.lost(recovered.operations)
        if taken.aim is not Aim.GO_ON:
            self.end("closed" if taken.aim is Aim.CLOSE else "failed", taken.reason)

    # The start

    async def _start(self) -> None:
        if self._ending.done():
            return
        with Span(self._asked_by):
            await self._begun()

    async def _begun(self) -> None:
        if self._taken is not None:
            if self.place is None:
                raise Unavailable("the session's executor is not configured any more")
            self._reconciler.active = True
            await self.recovery.reconnect_all(self.place)
            return
        assert self.place is not None
        try:
            async with asyncio.timeout(self.limits.open):
                await self._start_up(self.place)
        except TimeoutError as exc:
            raise Unavailable(f"the session is not ready after {self.limits.open:g} s") from exc

    async def _start_up(self, place: Place) -> None:
        await self.set_state("opening")
        self.journal.say_sets()
        line = self.line
        await line.open(place)
        await line.connect()
        try:
            await line.begin(place)
        except TielineError as exc:
            assert line.instance is not None
            assert line.manager is not None
            raise await explained(exc, line.instance, line.manager) from exc
        await line.remember_agent()
        await self.set_state("ready")
        self._reconciler.active = True

    # The end

    async def _finish(self, ending: Ending) -> None:
        """End everything that is open, or leave it all to the next owner; then give the session up."""
        try:
            async with asyncio.timeout(self.limits.drain + 30):
                if ending.state == "released":
                    await self._end.hand_over()
                else:
                    if ending.state == "closed":
                        await self.set_state("closing")
                    await self._end.wind_down(ending)
                    await self.set_state(ending.state, ending.reason)
                async with asyncio.timeout(self.limits.drain):
                    await self.journal.settled()
                await self.ledger.release()
        except (TimeoutError, TielineError) as exc:
            # The key stays unreleased, and the next owner will say so in its opening.
            log.error("a session could not be released", session=self.id, error=repr(exc))
