"""A session's way to its instance: the HTTP client, both sockets, and the agent behind them.

When which of these is used: session.py. What a socket has missed: reconcile.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from tieline_protocol import jsontext
from tieline_protocol.errors import Code, Refused, TielineError, Unavailable
from tieline_protocol.messages import InstanceRecord

from tieline_streams.agent_tools import AgentTools
from tieline_streams.dialling import Fatal
from tieline_streams.executors import Wanted
from tieline_streams.instance import Instance
from tieline_streams.journal import Journal
from tieline_streams.ownership import Ledger, Parts, Place
from tieline_streams.replay import MOST
from tieline_streams.stream_manager import Execution, StreamManager
from tieline_streams.workspace_callbacks import WorkspaceStreamCallbacks

log = structlog.get_logger()

CLIENT = {"client_name": "tieline-streams", "client_version": "0.1"}
RUNNING = ("running", "starting")


class Line:
    """Of one session in one epoch. `broken` is told why it cannot go on; `up` which socket has connected."""

    def __init__(
        self,
        parts: Parts,
        ledger: Ledger,
        journal: Journal,
        tools: AgentTools,
        epoch: int,
        broken: Callable[[str], None],
        up: Callable[[str], None],
    ) -> None:
        self._ledger = ledger
        self._journal = journal
        self._tools = tools
        self._epoch = epoch
        self._broken = broken
        self._up = up
        self._limits = parts.config.limits
        self._may_act = parts.lease.may_act
        self._streams: asyncio.Task[None] | None = None
        self.manager: StreamManager | None = None
        self.instance: Instance | None = None
        self.record: InstanceRecord | None = None
        self._url = ""

    # The instance

    async def open(self, place: Place) -> None:
        """A new instance with an agent in it, not connected yet. Raises TielineError."""
        self.record = record = await place.executor.open(Wanted(self._ledger.record.session, place.path))
        await self._ledger.place(record)
        await (await self.reach(record, place)).healthy(self._limits.health)
        await self.start_agent(place)

    async def reach(self, record: InstanceRecord, place: Place) -> Instance:
        """Raises TielineError."""
        self._url = await place.executor.reach(record, self._ledger.record.session)
        self.instance = Instance(
            self._url, self._headers(record), place.routes, self._limits.answer_bytes, self._may_act
        )
        return self.instance

    def _headers(self, record: InstanceRecord) -> dict[str, str]:
        headers = {"X-Instance-ID": record.instance, "X-Tieline-Epoch": str(self._epoch)}
        if record.token:
            headers["Authorization"] = f"Bearer {record.token}"
        return headers

    async def start_agent(self, place: Place) -> None:
        # The agent is started before the workspace stream is opened: the daemon in the field looks its shell up
        # once, at the connect, and has none before the start.
        assert self.instance is not None
        agent = place.agent
        command = {"command": " ".join(agent.command), "agent_args": list(agent.command)}
        await self.instance.do("configure", {**command, "env": agent.environment()}, self._limits.http)
        await self.instance.do("start", {}, self._limits.http)

    async def status(self) -> dict[str, Any]:
        """What the daemon says of its agent. Raises TielineError."""
        if self.instance is None:
            raise Unavailable("the session is not connected")
        value: dict[str, Any] = jsontext.loads(await self.instance.call("status", {}, self._limits.health))
        return value

    # The sockets

    async def connect(self) -> None:
        """Both sockets; returns when both are up. Raises Fatal."""
        journal, record = self._journal, self.record
        assert record is not None
        execution = Execution(
            url=self._url,
            headers=self._headers(record),
            handler=journal.updates,
            mcp_handler=self._tools.asked,
            on_disconnect=self._agent_lost,
            on_connect=self._agent_up,
            on_invalid=journal.invalid,
            callbacks=WorkspaceStreamCallbacks(on_frames=journal.workspace_frames),
            tell=self._tell,
            on_workspace=lambda: self._up("workspace"),
            may_act=self._may_act,
        )
        self.manager = journal.manager = StreamManager(execution, self._limits)
        for id in journal.questions.ids():
            self.manager.reverse.adopt(id)
        ready = asyncio.Event()
        session = self._ledger.record.session
        self._streams = asyncio.create_task(
            self.manager.connect_all(execution, ready), name=f"streams {session}"
        )
        self._streams.add_done_callback(self._streams_ended)
        up = asyncio.create_task(ready.wait(), name=f"ready {session}")
        try:
            await asyncio.wait([up, self._streams], return_when=asyncio.FIRST_COMPLETED)
            if self._streams.done():
                self._streams.result()
        finally:
            up.cancel()

    def _agent_up(self) -> None:
        self._journal.agent_up()
        self._up("agent")

    def _agent_lost(self, reason: str) -> None:
        self._journal.agent_lost(reason)
        self._tools.lost()

    def _tell(self, event: dict[str, Any]) -> None:
        self._journal.connection(event)
        if event["state"] == "down":
            self._up("instance")  # is it there at all?

    def _streams_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (exc := task.exception()) is not None:
            if not isinstance(exc, TielineError):
                log.error("the streams of a session broke", exc_info=exc)
            self._broken(exc.message if isinstance(exc, TielineError) else "internal error")

    # The agent's conversation

    async def initialize(self) -> None:
        """What every process of the agent hears first. Raises TielineError."""
        assert self.manager is not None
        await self.manager.send_stream_request("agent.initialize", dict(CLIENT), 180)

    async def begin(self, place: Place) -> None:
        """A new conversation. Raises TielineError."""
        await self.initialize()
        assert self.manager is not None
        made = await self.manager.send_stream_request(
            "agent.session.new", {"cwd": str(place.path), "mcp_servers": []}, 120
        )
        if made.get("success") is False:
            raise Unavailable(f"the agent has no session: {made.get('error') or 'it refused'}")
        acp = made.get("session_id")
        await self._ledger.write(acp_session=acp if isinstance(acp, str) else None)

    async def load(self) -> None:
        """The conversation that the record names, in an agent that does not have it. Raises TielineError."""
        assert self.manager is not None
        acp = self._ledger.record.acp_session
        if acp is None:
            raise Refused(Code.INTERNAL, "the agent has exited, and there is no conversation to go on with")
        await self.initialize()
        loop, replay = asyncio.get_running_loop(), self._journal.replay
        replay.begin(loop.time())
        try:
            loaded = await self.manager.send_stream_request(
                "agent.session.load", {"session_id": acp, "mcp_servers": []}, 120
            )
            replay.loaded(loop.time())
            until = loop.time() + MOST
            while (wait := replay.quiet_in(loop.time())) and loop.time() < until:
                await asyncio.sleep(wait)
        finally:
            replay.end()
        if loaded.get("success") is False:
            raise Refused(
                Code.INTERNAL,
                f"the agent cannot load its conversation: {loaded.get('error') or 'it refused'}",
            )

    async def remember_agent(self) -> None:
        """Write down which process has the conversation. Raises TielineError."""
        assert self.record is not None
        try:
            pid = agent_pid(await self.status())
        except Fatal:
            raise
        except TielineError as exc:  # then it is taken for the one that has it, as long as one runs
            log.info("an agent's process is not known", error=exc.message)
            return
        if pid is not None and pid != self.record.agent_pid:
            self.record = self.record.model_copy(update={"agent_pid": pid})
            await self._ledger.place(self.record)

    # The end

    async def disconnect(self, *, tell: bool) -> None:
        """The agent's socket, the workspace's, and what dials them again."""
        if self._streams is not None and not tell:
            await self._stop_dialling()  # somebody else goes on: there is nothing to be said about it
        if self.manager is not None:
            await self.manager.close()
        await self._stop_dialling()
        if tell:
            for stream in ("agent", "workspace"):
                self._journal.connection({"type": "connection", "stream": stream, "state": "down"})

    async def _stop_dialling(self) -> None:
        if self._streams is not None:
            self._streams.cancel()
            await asyncio.gather(self._streams, return_exceptions=True)

    def cut(self) -> Mapping[str, int]:
        """The session is not ours any more: drop both sockets. Returns how many frames of each were not used."""
        return self.manager.cut() if self.manager is not None else {}

    async def close_client(self) -> None:
        if self.instance is not None:
            await self.instance.close()
            self.instance = None


def agent_pid(status: dict[str, Any]) -> int | None:
    info = status.get("process_info")
    pid = info.get("pid") if isinstance(info, dict) else None
    return pid if isinstance(pid, int) and pid > 0 else None


def exit_code(status: dict[str, Any]) -> int | None:
    """How an agent that does not run has ended, where its daemon knows."""
    info = status.get("process_info")
    code = info.get("exit_code") if isinstance(info, dict) else None
    return code if isinstance(code, int) and code >= 0 else None
