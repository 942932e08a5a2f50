"""A session that this process owns, from its opening to its release: start-up, life, end.

What its sockets say and what is published: journal.py. What its owner is asked to do: commands.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Literal

import structlog
from tieline_protocol.errors import TielineError, Unavailable
from tieline_protocol.messages import InstanceRecord, SessionRecord, SessionState

from tieline_streams.agent_tools import AgentTools
from tieline_streams.executors import Wanted
from tieline_streams.failing import as_unavailable, explained
from tieline_streams.instance import Instance
from tieline_streams.journal import Journal
from tieline_streams.operations import Operations
from tieline_streams.ownership import Ending, Found, Ledger, Parts, Place
from tieline_streams.remote_tools import RemoteTools
from tieline_streams.stream_manager import Execution, StreamManager
from tieline_streams.workspace_callbacks import WorkspaceStreamCallbacks

log = structlog.get_logger()

_STORE = 1.0

CLIENT = {"client_name": "tieline-streams", "client_version": "0.1"}


class Session:
    """`epoch` is the revision of the write that took the session. `run` is its life.

    Without a `place` it is taken only to be ended, and its executor is not configured any more.
    """

    def __init__(
        self, parts: Parts, record: SessionRecord, epoch: int, place: Place | None, found: Found | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        self.id = record.session
        self.user = record.user
        self.place = place
        self.limits = parts.config.limits
        self.ledger = Ledger(parts, record, epoch)
        self.journal = Journal(parts, record.user, record.session, epoch)
        self.operations = Operations(self.journal.workspace.say)
        remotes = RemoteTools(parts.bus, record.user, record.remotes, epoch)
        self.tools = AgentTools(self.journal, remotes)
        self.manager: StreamManager | None = None
        self.instance: Instance | None = None
        self.opened: asyncio.Future[None] = loop.create_future()
        self.finished = asyncio.Event()
        self.gone = (
            asyncio.Event()
        )  # nobody is served here any more: whoever asks now is answered from the record
        self._parts = parts
        self._epoch = epoch
        self._found = found
        self._ending: asyncio.Future[Ending] = loop.create_future()
        self._streams: asyncio.Task[None] | None = None
        self._instance = found.instance if found else None

    def may_act(self) -> bool:
        """Whether this process is certain to own the session; asked at each use."""
        return self._parts.lease.may_act()

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

    # Life

    async def run(self) -> None:
        """From the opening to the release. Commands are served by the caller meanwhile."""
        working = self.journal.tasks()
        living = asyncio.create_task(self._live(), name=f"session {self.id}")
        try:
            await asyncio.wait([*working, living], return_when=asyncio.FIRST_COMPLETED)
            for task in working:
                if task.done():
                    task.result()  # it never ends by itself: this raises
            await living
        except Exception:
            await self._not_opened(Unavailable("something broke"), "something broke")
            raise
        finally:
            for task in [living, *working]:
                task.cancel()
            await asyncio.gather(living, *working, return_exceptions=True)
            if self.instance is not None:  # something broke: whatever is still open must not stay
                await self._disconnect()
                await self._close_instance(Ending("failed"))
            if not self.opened.done():
                self.opened.set_exception(as_unavailable(Unavailable("the session ended"), self.id))
            self.opened.exception()  # nobody may be waiting for it any more
            self.finished.set()

    async def _live(self) -> None:
        await self.journal.open(self._found or Found())
        starting = asyncio.create_task(self._start(), name=f"start {self.id}")
        waiting: set[asyncio.Future[Any]] = {starting, self._ending}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await self._started(starting)
            ending = await self._ending
        finally:
            starting.cancel()
        await self._finish(ending)

    async def _started(self, starting: asyncio.Task[None]) -> None:
        if starting.cancelled():
            ending = self._ending.result()
            told = Unavailable(ending.reason or "the session was closed while it opened")
            await self._not_opened(told, ending.reason if ending.state == "failed" else None)
            return
        if (exc := starting.exception()) is None:
            self.opened.set_result(None)
            return
        if not isinstance(exc, TielineError):
            log.error("a session could not be opened", session=self.id, exc_info=exc)
        why = as_unavailable(exc, self.id)
        self.end("failed", why.message)
        await self._not_opened(why, why.message)

    async def _not_opened(self, why: TielineError, failed: str | None) -> None:
        """Stored before it is told, so that whoever hears it finds it in the list. The log says it at the end."""
        if failed is not None and self.state not in ("closed", "failed"):
            try:
                async with asyncio.timeout(_STORE):
                    await self.ledger.write(state="failed", reason=failed)
            except TimeoutError:
                log.warning("that a session failed could not be stored yet", session=self.id)
        if not self.opened.done():
            self.opened.set_exception(as_unavailable(why, self.id))

    # The start

    async def _start(self) -> None:
        if self._ending.done() or self.place is None:
            return
        try:
            async with asyncio.timeout(self.limits.open):
                await self._start_up(self.place)
        except TimeoutError as exc:
            raise Unavailable(f"the session is not ready after {self.limits.open:g} s") from exc

    async def _start_up(self, place: Place) -> None:
        await self.set_state("opening")
        self.journal.say_sets()
        self._instance = record = await place.executor.open(Wanted(self.id, place.path))
        await self.ledger.place(record)
        headers = {"X-Instance-ID": record.instance, "X-Tieline-Epoch": str(self._epoch)}
        if record.token:
            headers["Authorization"] = f"Bearer {record.token}"
        self.instance = Instance(
            record.url, headers, place.routes, self.limits.answer_bytes, self._parts.lease.may_act
        )
        await self.instance.healthy(self.limits.health)
        agent = place.agent
        command = {"command": " ".join(agent.command), "agent_args": list(agent.command)}
        await self.instance.do("configure", {**command, "env": agent.environment()}, self.limits.http)
        # The agent is started before the workspace stream is opened: the daemon in the field looks its shell up
        # once, at the connect, and has none before the start.
        await self.instance.do("start", {}, self.limits.http)
        await self._connect(record, headers)
        try:
            await self._initialize(place)
        except TielineError as exc:
            assert self.manager is not None
            raise await explained(exc, self.instance, self.manager) from exc
        await self.set_state("ready")

    async def _connect(self, record: InstanceRecord, headers: dict[str, str]) -> None:
        journal = self.journal
        execution = Execution(
            url=record.url,
            headers=headers,
            handler=journal.update,
            mcp_handler=self.tools.asked,
            on_disconnect=self._agent_lost,
            on_connect=journal.agent_up,
            on_invalid=journal.invalid,
            callbacks=WorkspaceStreamCallbacks(on_frame=journal.workspace_frame),
            tell=journal.connection,
            may_act=self._parts.lease.may_act,
        )
        self.manager = journal.manager = StreamManager(execution, self.limits)
        ready = asyncio.Event()
        self._streams = asyncio.create_task(
            self.manager.connect_all(execution, ready), name=f"streams {self.id}"
        )
        self._streams.add_done_callback(self._streams_ended)
        up = asyncio.create_task(ready.wait(), name=f"ready {self.id}")
        try:
            await asyncio.wait([up, self._streams], return_when=asyncio.FIRST_COMPLETED)
            if self._streams.done():
                self._streams.result()
        finally:
            up.cancel()

    def _agent_lost(self, reason: str) -> None:
        self.journal.agent_lost(reason)
        self.tools.lost()

    def _streams_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (exc := task.exception()) is not None:
            if not isinstance(exc, TielineError):
                log.error("the streams of a session broke", session=self.id, exc_info=exc)
            self.end("failed", exc.message if isinstance(exc, TielineError) else "internal error")

    async def _initialize(self, place: Place) -> None:
        assert self.manager is not None
        await self.manager.send_stream_request("agent.initialize", dict(CLIENT), 180)
        made = await self.manager.send_stream_request(
            "agent.session.new", {"cwd": str(place.path), "mcp_servers": []}, 120
        )
        if made.get("success") is False:
            raise Unavailable(f"the agent has no session: {made.get('error') or 'it refused'}")
        acp = made.get("session_id")
        await self.ledger.write(acp_session=acp if isinstance(acp, str) else None)

    # The end

    async def _finish(self, ending: Ending) -> None:
        """End everything that is open, in the logs first, then in the world."""
        try:
            async with asyncio.timeout(self.limits.drain + 30):
                await self._wind_down(ending)
                await self._last_words(ending)
        except (TimeoutError, TielineError) as exc:
            # The key stays unreleased, and the next owner will say so in its opening.
            log.error("a session could not be released", session=self.id, error=repr(exc))

    async def _wind_down(self, ending: Ending) -> None:
        journal = self.journal
        if ending.state == "closed":
            await self.set_state("closing")
        reason = "cancelled" if ending.state == "closed" else "disconnected"
        if self._found is not None:
            for turn in self._found.turns:
                journal.agent.say({**turn, "state": "ended", "reason": reason})
            journal.say_sets()
        self.tools.close("the session has ended")
        journal.tell(journal.turns.end_all(reason, asyncio.get_running_loop().time()))
        if journal.permissions.clear():
            journal.agent.say(journal.permissions.event())
        await self.operations.close()
        await self._disconnect()
        if journal.processes.clear():
            journal.workspace.say(journal.processes.event())
        await self._close_instance(ending)

    async def _disconnect(self) -> None:
        """The agent's socket, the workspace's, and what dials them again."""
        if self.manager is not None:
            await self.manager.close()
        if self._streams is not None:
            self._streams.cancel()
            await asyncio.gather(self._streams, return_exceptions=True)
        if self.manager is not None or self._found is not None:
            for stream in ("agent", "workspace"):
                self.journal.connection({"type": "connection", "stream": stream, "state": "down"})

    async def _close_instance(self, ending: Ending) -> None:
        """Also when only this process stops: nothing takes sessions over yet, and an agent that nobody hears or can
        reach must not go on working."""
        record, place = self._instance, self.place
        if self.instance is not None:
            if ending.state == "closed":
                await self._try(self.instance.do("stop", {}, 12), "the agent could not be stopped")
            await self.instance.close()
            self.instance = None
        if record is not None and place is not None:
            await self._try(place.executor.close(record, self.id), "an instance could not be closed")
            await self._try(self.ledger.forget_place(), "an instance's record could not be deleted")

    async def _try(self, work: Awaitable[None], what: str) -> None:
        try:
            async with asyncio.timeout(15):
                await work
        except (TielineError, TimeoutError) as exc:
            log.warning(what, session=self.id, error=str(exc))

    async def _last_words(self, ending: Ending) -> None:
        if ending.state != "released":
            await self.set_state(ending.state, ending.reason)
        async with asyncio.timeout(self.limits.drain):
            await self.journal.settled()
        await self.ledger.release()
