"""The two logs of a session, and what follows from what is put into them: turns, open permissions and questions,
processes.

What follows is decided by the pure parts (turn.py, values.py, questions.py); this file hands facts to them and
publishes what they return. Everything here but the clock runs inside the readers of the sockets and must not wait.

What a reconnect may have missed is found out by reconcile.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tieline_protocol import jsontext
from tieline_protocol.agentctl import Frame
from tieline_protocol.backpressure import AgentBacklog, WorkspaceBacklog
from tieline_protocol.messages import LogHead
from tieline_protocol.numbering import BULK, Numbering, gap
from tieline_protocol.publisher import EventPublisher

from tieline_streams import stitch
from tieline_streams.metrics import TURNS
from tieline_streams.ownership import Found, Parts
from tieline_streams.questions import ASK, Answers, Questions
from tieline_streams.recovered import Recovered
from tieline_streams.replay import Replay
from tieline_streams.stream_manager import StreamManager
from tieline_streams.tail import Tail
from tieline_streams.turn import Due, end_told
from tieline_streams.turns import Turns
from tieline_streams.values import Permissions, Processes

HELD = 1024 * 1024  # bytes of output that wait, for at most some seconds


class Journal:
    """`run` publishes; `manager` is set once there are sockets, whose reading the agent's log may stop."""

    def __init__(self, parts: Parts, user: str, session: str, epoch: int) -> None:
        limits = parts.config.limits
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._session = session
        self._backlog = AgentBacklog(parts.budget, limits.backlog_bytes)
        self._paused = False
        self.manager: StreamManager | None = None
        self.on_due: Callable[[Due], None] = lambda due: None  # the daemon is to be asked, or told to cancel
        self.turns = Turns(limits.turn)
        self.permissions = Permissions()
        self.questions = Questions()
        self.processes = Processes()
        self.tail = Tail()
        self.replay = Replay()
        self._held: list[Frame] | None = None
        self._held_bytes = 0
        may_act = parts.lease.may_act
        self.agent = EventPublisher(
            parts.agent_bus,
            Numbering(user, session, "agent", epoch),
            self._backlog,
            limits.event_bytes,
            on_room=self._agent_room,
            may_act=may_act,
        )
        self.workspace = EventPublisher(
            parts.workspace_bus,
            Numbering(user, session, "workspace", epoch),
            WorkspaceBacklog(limits.backlog_bytes),
            limits.event_bytes,
            on_numbered=self._workspace_numbered,
            may_act=may_act,
        )

    def tasks(self) -> list[asyncio.Task[None]]:
        """Its work, which never ends by itself; whoever asks for it owns it."""
        return [
            *self.publishing(),
            asyncio.create_task(self._clock(), name=f"clock {self._session}"),
        ]

    def publishing(self) -> list[asyncio.Task[None]]:
        """What of it carries events into the logs."""
        return [
            asyncio.create_task(self.agent.run(), name=f"agent log {self._session}"),
            asyncio.create_task(self.workspace.run(), name=f"workspace log {self._session}"),
        ]

    def forget(self) -> None:
        """Nobody will publish what is not published yet."""
        self.agent.forget()
        self.workspace.forget()

    async def open(self, found: Found) -> None:
        """Begin the epoch in both logs. Raises Unavailable."""
        await asyncio.gather(
            self.agent.open(*found.agent, found.clean), self.workspace.open(*found.workspace, found.clean)
        )

    async def settled(self) -> None:
        """Wait until everything said so far is certainly stored."""
        await self.workspace.settled()
        await self.agent.settled()

    @property
    def paused(self) -> bool:
        """Whether the agent's socket is not read, because its log is full."""
        return self._paused

    def heads(self) -> dict[str, LogHead]:
        return {"agent": self.agent.head(), "workspace": self.workspace.head()}

    def restore(self, recovered: Recovered) -> None:
        """Go on where another owner has stopped; what its logs say is said again, as the state it is."""
        self.turns.restore(recovered.turns, self._loop.time())
        self.permissions.restore("pending_id", recovered.permissions)
        self.questions.restore(recovered.questions)
        self.processes.restore("process_id", recovered.processes)
        self.tail.numbered(recovered.shell)
        self.tell(self.turns.permissions(bool(self.permissions), self._loop.time()))
        self._wake.set()

    # What is said

    def say_sets(self) -> None:
        """The whole state of every set, for those who come late."""
        self.agent.say(self.permissions.event())
        self.agent.say(self.questions.event())
        self.workspace.say(self.processes.event())

    def tell(self, events: list[dict[str, Any]]) -> None:
        """Publish what the turns say. Once no turn is open no decision is waited for."""
        if not events:
            return
        for event in events:
            self.agent.say(event)
            if event["state"] == "ended":
                TURNS.labels(reason=event["reason"]).inc()
        if not self.turns.open and self.permissions.clear():
            self.agent.say(self.permissions.event())
            self.turns.permissions(False, self._loop.time())
        front = self.turns.front
        if any(
            event["state"] == "ended" and (front is None or event["generation"] < front.generation)
            for event in events
        ):
            self.close_questions("the turn has ended")
        self._wake.set()

    def permissions_changed(self) -> None:
        """Publish the set, and what it means for the turn."""
        self.agent.say(self.permissions.event())
        self.tell(self.turns.permissions(bool(self.permissions), self._loop.time()))

    def question(self, id: str, payload: dict[str, Any]) -> None:
        """The agent asks the user. Raises TielineError."""
        self.questions.ask(id, payload)
        self.agent.say(self.questions.event())

    def answer_question(
        self, id: str, answers: Answers | None, rejected: bool, reason: str | None = None
    ) -> None:
        """The user's answer, for the daemon. Raises TielineError."""
        self._reply(id, self.questions.answer(id, answers, rejected, reason))
        self.agent.say(self.questions.event())

    def close_questions(self, reason: str) -> None:
        """Nobody will answer what is open. The daemon is told: it would wait for ever."""
        closed = self.questions.close(reason)
        for id, reply in closed:
            self._reply(id, reply)
        if closed:
            self.agent.say(self.questions.event())

    def _reply(self, id: str, reply: dict[str, Any]) -> None:
        if self.manager is not None:  # else it was asked by a daemon that nobody has reached since
            self.manager.reverse.reply(id, ASK, reply)

    def wake(self) -> None:
        """The turns may be due earlier than they were."""
        self._wake.set()

    async def _clock(self) -> None:
        """Let the turns know when time has passed for them."""
        while True:
            try:
                async with asyncio.timeout_at(self.turns.due()):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            due = self.turns.tick(self._loop.time())
            self.tell(due.events)
            if due.ask or due.cancel:
                self.on_due(due)

    # What the sockets say

    def updates(self, frames: list[Frame]) -> None:
        """Events of the agent's, in order."""
        for run in _runs(frames):
            if len(run) > 1 and not self.replay.loading:
                self.agent.put_all(run)
                self._heard(run[-1])
                continue
            for frame in run:
                if not self.replay.is_old(frame.type, frame.value, self._loop.time()):
                    self.agent.put(frame.type, frame.raw, frame.value)
                    self._heard(frame)

    def _heard(self, frame: Frame) -> None:
        """What an event means for the sets, after it was put in its log; of a run of bulk the last stands for all."""
        type, value, _ = frame
        if self.turns.open:
            self.tell(self.turns.heard(type, value, self._loop.time()))
        if self.permissions.heard(type, value):
            self.permissions_changed()
        if type == "error" and end_told(type, value) == "agent_exited":
            self.close_questions("the agent has exited")
            self.on_due(Due([], ask=True))
        if not self._backlog.reading and self.manager is not None:
            self._paused = True
            self.turns.reading(False, self._loop.time())
            self.manager.pause_agent()

    def workspace_frames(self, frames: list[Frame]) -> None:
        """Frames of the workspace's, in order."""
        for run in _runs(frames):
            if self._held is not None and run[0].type == "shell_output":
                self._held += run
                self._held_bytes += sum(len(frame.raw) for frame in run)
                if self._held_bytes > HELD:
                    self.release_shell(None)
                continue
            self.workspace.put_all(run)
            if self.processes.heard(run[0].type, run[0].value):
                self.workspace.say(self.processes.event())

    def hold_shell(self) -> None:
        """Its output waits until it is known what comes before it."""
        if self._held is None:
            self._held, self._held_bytes = [], 0

    def release_shell(self, kept: str | None) -> None:
        """`kept` is what the daemon keeps of the output; None: it cannot be known."""
        held, self._held = self._held, None
        if held is None:
            return
        if kept is not None and not self.workspace.backlog:
            text = "".join(frame.value["data"] for frame in held if isinstance(frame.value.get("data"), str))
            between, follows = stitch.missing(self.tail.text(), kept, text)
            if not follows:
                self.workspace.say_raw("gap", gap("owner_lost", type="shell_output"))
            if between:
                event = {"type": "shell_output", "data": between}
                self.workspace.put("shell_output", jsontext.dumps(event), event)
        if held:
            self.workspace.put_all(held)

    def output_missed(self) -> None:
        """Processes have run while nobody listened; what they wrote is with the daemon, if it keeps it."""
        self.workspace.say_raw("gap", gap("daemon", type="process_output"))

    def agent_exited(self) -> None:
        """The agent is not there any more: what was open with it ends."""
        self.tell(self.turns.end_all("agent_exited", self._loop.time()))
        if self.permissions.clear():
            self.permissions_changed()
        self.close_questions("the agent has exited")

    def agent_up(self) -> None:
        self.turns.agent_up(self._loop.time())

    def agent_lost(self, reason: str) -> None:
        self.turns.agent_lost(self._loop.time())
        self._wake.set()

    def connection(self, event: dict[str, Any]) -> None:
        """How one of the sockets is."""
        (self.agent if event["stream"] == "agent" else self.workspace).say(event)

    def invalid(self, stream: str, gap: bytes) -> None:
        """What came was no event."""
        (self.agent if stream == "agent" else self.workspace).say_raw("gap", gap)

    def _agent_room(self) -> None:
        if self._paused and self._backlog.reading and self.manager is not None:
            self._paused = False
            self.turns.reading(True, self._loop.time())
            self.manager.resume_agent()
            self.on_due(
                Due([], ask=True)
            )  # a daemon that was not read has decided and dropped things by itself

    def _workspace_numbered(self, type: str, raws: Sequence[bytes]) -> None:
        if type == "shell_output":
            self.tail.numbered(raws)


def _runs(frames: list[Frame]) -> Iterator[list[Frame]]:
    """Neighbours of one bulk type together, everything else alone."""
    run: list[Frame] = []
    for frame in frames:
        if run and (frame.type != run[0].type or frame.type not in BULK):
            yield run
            run = []
        run.append(frame)
    if run:
        yield run
