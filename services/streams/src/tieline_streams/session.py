"""A session that this process owns, from its opening to its release: start-up, what its sockets say, its end.

Commands are in commands.py. What follows from events is decided by the pure parts (turn.py, values.py); this file
hands facts to them and publishes what they return.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import structlog
from tieline_protocol import subjects
from tieline_protocol.agentctl import Frame
from tieline_protocol.bus import Bus
from tieline_protocol.errors import Code, Refused, TielineError, Unavailable
from tieline_protocol.jetstream import Bucket
from tieline_protocol.messages import Changed, InstanceRecord, OwnerRecord, SessionRecord, SessionState

from tieline_streams.backpressure import AgentBacklog, Budget, WorkspaceBacklog
from tieline_streams.config import AgentSettings, Config
from tieline_streams.executors import Executor, Wanted
from tieline_streams.instance import Instance
from tieline_streams.numbering import Numbering
from tieline_streams.operations import Operations
from tieline_streams.publisher import EventPublisher
from tieline_streams.stream_manager import Execution, StreamManager, WorkspaceStreamCallbacks
from tieline_streams.tail import Tail
from tieline_streams.turn import Turns
from tieline_streams.values import Permissions, Processes

log = structlog.get_logger()

CLIENT = {"client_name": "tieline-streams", "client_version": "0.1"}


@dataclass(frozen=True, slots=True)
class Parts:
    """What all sessions of a process share. Each kind of log has a connection of its own."""

    config: Config
    bus: Bus
    agent_bus: Bus
    workspace_bus: Bus
    sessions: Bucket
    instances: Bucket
    owners: Bucket
    budget: Budget
    holder: str


@dataclass(frozen=True, slots=True)
class Found:
    """How an owner finds a session: how far its logs are, whether the last owner released, which turns are open."""

    agent: tuple[int, int] = (0, 0)
    workspace: tuple[int, int] = (0, 0)
    clean: bool = True
    turns: tuple[dict[str, Any], ...] = ()
    instance: InstanceRecord | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """`released`: the process stops and the session does not."""

    state: Literal["closed", "failed", "released"]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where and with what a session works."""

    executor: Executor
    routes: Literal["field", "seed"]
    path: Path
    agent: AgentSettings


@dataclass(slots=True)
class Session:
    """`epoch` is the revision of the write that took the session. `run` is its life."""

    parts: Parts
    record: SessionRecord
    epoch: int
    place: Place | None  # None: it is taken only to be ended, and its executor is not configured any more
    found: Found = field(default_factory=Found)
    turns: Turns = field(init=False)
    permissions: Permissions = field(default_factory=Permissions)
    processes: Processes = field(default_factory=Processes)
    tail: Tail = field(default_factory=Tail)
    agent_log: EventPublisher = field(init=False)
    workspace_log: EventPublisher = field(init=False)
    operations: Operations = field(init=False)
    manager: StreamManager | None = None
    instance: Instance | None = None
    opened: asyncio.Future[None] = field(init=False)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    _ending: asyncio.Future[Ending] = field(init=False)
    _streams: asyncio.Task[None] | None = None
    _instance_record: InstanceRecord | None = None
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        limits, parts = self.parts.config.limits, self.parts
        user, id = self.record.user, self.record.session
        self.turns = Turns(limits.turn)
        self.agent_log = EventPublisher(
            parts.agent_bus,
            Numbering(user, id, "agent", self.epoch),
            AgentBacklog(parts.budget, limits.backlog_bytes),
            limits.event_bytes,
            on_room=self._agent_room,
        )
        self.workspace_log = EventPublisher(
            parts.workspace_bus,
            Numbering(user, id, "workspace", self.epoch),
            WorkspaceBacklog(limits.backlog_bytes),
            limits.event_bytes,
            on_numbered=self._workspace_numbered,
        )
        self.operations = Operations(self.workspace_log.say)
        self.opened = loop.create_future()
        self._ending = loop.create_future()
        self._instance_record = self.found.instance

    @property
    def id(self) -> str:
        return self.record.session

    @property
    def state(self) -> SessionState:
        return self.record.state

    def end(self, state: Literal["closed", "failed", "released"], reason: str | None = None) -> None:
        """Begin the end; the first reason counts."""
        if not self._ending.done():
            self._ending.set_result(Ending(state, reason))

    # Life

    async def run(self) -> None:
        """From the opening to the release. Commands are served by the caller meanwhile."""
        publishing = [
            asyncio.create_task(self.agent_log.run(), name=f"agent log {self.id}"),
            asyncio.create_task(self.workspace_log.run(), name=f"workspace log {self.id}"),
            asyncio.create_task(self._clock(), name=f"clock {self.id}"),
        ]
        living = asyncio.create_task(self._live(), name=f"session {self.id}")
        try:
            await asyncio.wait([*publishing, living], return_when=asyncio.FIRST_COMPLETED)
            for task in publishing:
                if task.done():
                    task.result()  # it never ends by itself: this raises
            await living
        finally:
            for task in [living, *publishing]:
                task.cancel()
            await asyncio.gather(living, *publishing, return_exceptions=True)
            if not self.opened.done():
                self.opened.set_exception(Unavailable("the session could not be opened"))
            self.opened.exception()  # nobody may be waiting for it any more
            self.finished.set()

    async def _live(self) -> None:
        await asyncio.gather(
            self.agent_log.open(*self.found.agent, self.found.clean),
            self.workspace_log.open(*self.found.workspace, self.found.clean),
        )
        starting = asyncio.create_task(self._start(), name=f"start {self.id}")
        waiting: set[asyncio.Future[Any]] = {starting, self._ending}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            self._started(starting)
            ending = await self._ending
        finally:
            starting.cancel()
        await self._finish(ending)

    def _started(self, starting: asyncio.Task[None]) -> None:
        if starting.cancelled():
            if not self.opened.done():
                self.opened.set_exception(Unavailable("the session was closed while it opened"))
            return
        exc = starting.exception()
        if exc is None:
            self.opened.set_result(None)
            return
        if not isinstance(exc, TielineError):
            log.error("a session could not be opened", session=self.id, exc_info=exc)
            exc = TielineError(f"the session could not be opened: {type(exc).__name__}")
        self.opened.set_exception(exc)
        self.end("failed", exc.message)

    async def _start(self) -> None:
        if self._ending.done() or self.place is None:
            return
        limits = self.parts.config.limits
        try:
            async with asyncio.timeout(limits.open):
                await self._start_up(self.place)
        except TimeoutError as exc:
            raise Unavailable(f"the session is not ready after {limits.open:g} s") from exc

    async def _start_up(self, place: Place) -> None:
        limits = self.parts.config.limits
        await self.set_state("opening")
        self.agent_log.say(self.permissions.event())
        self.agent_log.say({"type": "questions", "open": []})
        self.workspace_log.say(self.processes.event())
        record = await place.executor.open(Wanted(self.id, place.path))
        self._instance_record = record
        await self.parts.instances.put(self.id, record.encode())
        headers = {"X-Instance-ID": record.instance, "X-Tieline-Epoch": str(self.epoch)}
        if record.token:
            headers["Authorization"] = f"Bearer {record.token}"
        self.instance = Instance(record.url, headers, place.routes, limits.answer_bytes)
        await self.instance.healthy(limits.health)
        agent = place.agent
        command = {"command": " ".join(agent.command), "agent_args": list(agent.command)}
        await self.instance.do("configure", {**command, "env": agent.environment()}, limits.http)
        # The agent is started before the workspace stream is opened: the daemon in the field looks its shell up
        # once, at the connect, and has none before the start.
        await self.instance.do("start", {}, limits.http)
        await self._connect(record, headers)
        await self._initialize(place)
        await self.set_state("ready")

    async def _connect(self, record: InstanceRecord, headers: dict[str, str]) -> None:
        execution = Execution(
            url=record.url,
            headers=headers,
            handler=self._update,
            mcp_handler=_no_tools,
            on_disconnect=self._agent_lost,
            on_connect=self._agent_up,
            on_invalid=self._invalid,
            callbacks=WorkspaceStreamCallbacks(on_frame=self._workspace_frame),
            tell=self._connection,
        )
        self.manager = StreamManager(execution, self.parts.config.limits)
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
        self.record = self.record.model_copy(update={"acp_session": acp if isinstance(acp, str) else None})

    async def _finish(self, ending: Ending) -> None:
        """End everything that is open, in the logs first, then in the world."""
        try:
            async with asyncio.timeout(self.parts.config.limits.drain + 30):
                await self._wind_down(ending)
                await self._last_words(ending)
        except (TimeoutError, TielineError) as exc:
            # The key stays unreleased, and the next owner will say so in its opening.
            log.error("a session could not be released", session=self.id, error=repr(exc))

    async def _wind_down(self, ending: Ending) -> None:
        if ending.state == "closed":
            await self.set_state("closing")
        now = asyncio.get_running_loop().time()
        reason = "cancelled" if ending.state == "closed" else "disconnected"
        for turn in self.found.turns:
            self.agent_log.say({**turn, "state": "ended", "reason": reason})
        self.tell(self.turns.end_all(reason, now))
        taken_over = self.found != Found()
        if self.permissions.clear() or taken_over:
            self.agent_log.say(self.permissions.event())
        if taken_over:
            self.agent_log.say({"type": "questions", "open": []})
        await self.operations.close()
        await self._disconnect()
        if self.processes.clear() or taken_over:
            self.workspace_log.say(self.processes.event())
        await self._close_instance(ending)

    async def _disconnect(self) -> None:
        """The agent's socket, the workspace's, and what dials them again."""
        if self.manager is not None:
            await self.manager.close()
        if self._streams is not None:
            self._streams.cancel()
            await asyncio.gather(self._streams, return_exceptions=True)
        if self.manager is not None or self.found.instance is not None:
            for stream, events in (("agent", self.agent_log), ("workspace", self.workspace_log)):
                events.say({"type": "connection", "stream": stream, "state": "down"})

    async def _close_instance(self, ending: Ending) -> None:
        """Also when only this process stops: nothing takes sessions over yet, and an agent that nobody hears or can
        reach must not go on working."""
        record, place = self._instance_record, self.place
        if self.instance is not None:
            if ending.state != "failed":
                await self._try(self.instance.do("stop", {}, 12), "the agent could not be stopped")
            await self.instance.close()
        if record is not None and place is not None:
            await self._try(place.executor.close(record, self.id), "an instance could not be closed")
            await self._try(self.parts.instances.delete(self.id), "an instance's record could not be deleted")

    async def _try(self, work: Awaitable[None], what: str) -> None:
        try:
            async with asyncio.timeout(15):
                await work
        except (TielineError, TimeoutError) as exc:
            log.warning(what, session=self.id, error=str(exc))

    async def _last_words(self, ending: Ending) -> None:
        if ending.state != "released":
            await self.set_state(ending.state, ending.reason)
        async with asyncio.timeout(self.parts.config.limits.drain):
            await self.workspace_log.settled()
            await self.agent_log.settled()
        released = OwnerRecord(holder=self.parts.holder, released=True)
        await self.parts.owners.put(self.id, released.encode(), expected=self.epoch)

    # Records and news

    async def set_state(self, state: SessionState, reason: str | None = None) -> None:
        """Say it in the log, then in the record."""
        event: dict[str, Any] = {"type": "session", "state": state}
        if reason is not None:
            event["reason"] = reason
        wanted = "closed" if state in ("closing", "closed") else self.record.wanted
        self.agent_log.say(event)
        await self.write(state=state, reason=reason, wanted=wanted)

    async def write(self, **changes: Any) -> None:
        """Change the record and tell the user's connections."""
        added = self.record.state == "opening" and self.record.updated == self.record.created
        changes["updated"] = max(int(time.time() * 1000), self.record.updated + 1)
        self.record = self.record.model_copy(update=changes)
        key = subjects.session_key(self.record.user, self.id)
        await self.parts.sessions.put(key, self.record.encode())
        await announce(self.parts.bus, self.record.user, self.id, "added" if added else "updated")

    def tell(self, events: list[dict[str, Any]]) -> None:
        """Publish what the turns say. Once no turn is open no decision is waited for."""
        if not events:
            return
        for event in events:
            self.agent_log.say(event)
        if not self.turns.open and self.permissions.clear():
            self.agent_log.say(self.permissions.event())
            self.turns.permissions(False, asyncio.get_running_loop().time())
        self._wake.set()

    def permissions_changed(self) -> None:
        """Publish the set, and what it means for the turn."""
        self.agent_log.say(self.permissions.event())
        self.tell(self.turns.permissions(bool(self.permissions), asyncio.get_running_loop().time()))

    def wake(self) -> None:
        """The turns may be due earlier than they were."""
        self._wake.set()

    async def _clock(self) -> None:
        """Let the turns know when time has passed for them."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout_at(self.turns.due()):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            self.tell(self.turns.tick(loop.time()))

    # What the sockets say; all of this runs inside the readers

    def _update(self, frame: Frame, raw: bytes) -> None:
        type, value = frame
        self.agent_log.put(type, raw, value)
        if self.turns.open:
            self.tell(self.turns.heard(type, value, asyncio.get_running_loop().time()))
        if self.permissions.heard(type, value):
            self.permissions_changed()
        if not self._reading() and self.manager is not None:
            self.manager.pause_agent()

    def _reading(self) -> bool:
        backlog = self.agent_log.backlog
        return not isinstance(backlog, AgentBacklog) or backlog.reading

    def _agent_room(self) -> None:
        if self._reading() and self.manager is not None:
            self.manager.resume_agent()

    def _agent_up(self) -> None:
        self.turns.agent_up(asyncio.get_running_loop().time())

    def _agent_lost(self, reason: str) -> None:
        self.turns.agent_lost(asyncio.get_running_loop().time())
        self._wake.set()

    def _workspace_frame(self, frame: Frame, raw: bytes) -> None:
        self.workspace_log.put(frame.type, raw, frame.value)
        if self.processes.heard(frame.type, frame.value):
            self.workspace_log.say(self.processes.event())

    def _workspace_numbered(self, type: str, raw: bytes) -> None:
        if type == "shell_output":
            self.tail.numbered(raw)

    def _connection(self, event: dict[str, Any]) -> None:
        (self.agent_log if event["stream"] == "agent" else self.workspace_log).say(event)

    def _invalid(self, stream: str, gap: bytes) -> None:
        (self.agent_log if stream == "agent" else self.workspace_log).say_raw("gap", gap)


async def _no_tools(action: str, payload: dict[str, Any]) -> dict[str, Any]:
    raise Refused(Code.UNKNOWN_ACTION, f"{action} is not supported")


async def announce(bus: Bus, user: str, id: str, change: Literal["added", "updated", "removed"]) -> None:
    """Tell the gateways that a user's list changed. News only: who misses it asks for the list."""
    try:
        await bus.publish(subjects.changed(user), Changed(what="session", id=id, change=change).encode())
    except Unavailable as exc:
        log.info("a change could not be announced", session=id, error=exc.message)
