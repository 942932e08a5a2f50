"""Both sockets of one agentctl instance: the agent's, with its requests and events, and the workspace's.

They connect in parallel and live independently: what happens to one leaves the other alone. This file knows the wire
and nothing of sessions; what arrives goes to the callbacks of the `Execution`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog
from picows import WSCloseCode
from tieline_protocol import agentctl
from tieline_protocol.agentctl import Frame, Kind
from tieline_protocol.errors import BadMessage, Refused, Unavailable
from tieline_protocol.numbering import gap

from tieline_streams.config import Limits
from tieline_streams.metrics import INVALID
from tieline_streams.requests import Requests
from tieline_streams.retry import Retry
from tieline_streams.reverse_requests import McpHandler, ReverseRequests
from tieline_streams.sockets import Socket, dial
from tieline_streams.supervisor import Supervisor, Tell
from tieline_streams.workspace_callbacks import UpdateHandler, WorkspaceStreamCallbacks

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Execution:
    """An instance, and who listens to it."""

    url: str
    headers: dict[str, str]
    handler: UpdateHandler
    mcp_handler: McpHandler
    on_disconnect: Callable[[str], None]
    on_connect: Callable[[], None]
    on_invalid: Callable[[str, bytes], None]
    callbacks: WorkspaceStreamCallbacks
    tell: Tell
    on_workspace: Callable[[], None] = lambda: None
    may_act: Callable[[], bool] = lambda: True


class StreamManager:
    """The streams of one execution."""

    def __init__(self, execution: Execution, limits: Limits) -> None:
        self._execution = execution
        self._limits = limits
        self._base = execution.url.replace("http", "ws", 1)
        self._agent: Socket | None = None
        self._workspace: Socket | None = None
        self._requests: Requests | None = None
        self.reverse = ReverseRequests(self._to_agent)
        self._supervisors: dict[str, Supervisor] = {}
        self._closing = False

    # Life

    async def connect_all(self, execution: Execution, ready: asyncio.Event) -> None:
        """Connect both in parallel, set `ready` when both are up, keep both up until cancelled. Raises Fatal."""
        agent = Supervisor("agent", self._dial_agent, self._tend_agent, execution.tell, self._retry())
        workspace = Supervisor(
            "workspace", self._dial_workspace, self._tend_workspace, execution.tell, self._retry()
        )
        self._supervisors = {"agent": agent, "workspace": workspace}
        tasks = [
            asyncio.create_task(agent.run(), name="agent socket"),
            asyncio.create_task(workspace.run(), name="workspace socket"),
            asyncio.create_task(_both(agent, workspace, ready), name="both sockets up"),
        ]
        try:
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks[:2]:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.reverse.close()

    def states(self) -> dict[str, str]:
        """How each connection is, for people."""
        return {stream: supervisor.state for stream, supervisor in self._supervisors.items()}

    async def close(self) -> None:
        """The agent's socket, then the workspace's; the HTTP client is closed after this by its owner."""
        self._closing = True
        await self.reverse.close()
        sockets = [socket for socket in (self._agent, self._workspace) if socket is not None]
        await asyncio.gather(*(socket.close(self._limits.close_handshake) for socket in sockets))

    def redial_workspace(self) -> None:
        """The daemon looks its shell up at the connect: one that it has started since needs another connect."""
        if self._workspace is not None:
            self._workspace.drop("the agent was started")

    def cut(self) -> int:
        """Drop both sockets without a word: the session is not ours any more. Returns the frames not used."""
        self._closing = True
        unused = 0
        for socket in (self._agent, self._workspace):
            if socket is not None:
                socket.cut("the session has another owner")
                unused += socket.unused
        return unused

    def _retry(self) -> Retry:
        return Retry(random.random, self._limits.healthy, self._limits.slow_retry)

    async def _dial(self, path: str, on_text: Callable[[bytes], None]) -> Socket:
        if self._closing:
            raise Unavailable("closing")
        limits = self._limits
        return await dial(
            self._base + path,
            self._execution.headers,
            on_text,
            limit=limits.dial,
            max_frame=limits.frame_bytes,
            may_act=self._execution.may_act,
        )

    # The agent's socket

    async def stream_updates(
        self, handler: UpdateHandler, mcp_handler: McpHandler, on_disconnect: Callable[[str], None]
    ) -> Socket:
        """Connect the agent's socket: events to `handler`, the daemon's requests to `mcp_handler`."""
        holder: list[Socket] = []
        early: list[bytes] = []

        def received(raw: bytes) -> None:
            if not holder:
                early.append(raw)  # in one packet with the handshake
                return
            self._update(holder[0], raw, handler, mcp_handler)

        socket = await self._dial(agentctl.AGENT_STREAM, received)
        self._agent, self._requests = socket, Requests(socket.send)
        holder.append(socket)
        requests = self._requests

        def gone(lost: asyncio.Future[str]) -> None:
            requests.dropped()
            on_disconnect(lost.result())

        self._execution.on_connect()
        socket.lost.add_done_callback(gone)
        self.reverse.connected()
        for raw in early:
            received(raw)
        return socket

    async def _dial_agent(self) -> Socket:
        execution = self._execution
        return await self.stream_updates(execution.handler, execution.mcp_handler, execution.on_disconnect)

    async def _tend_agent(self, socket: Socket) -> str:
        return await self._tend("agent", socket, socket.send_ping)

    def _update(self, socket: Socket, raw: bytes, handler: UpdateHandler, mcp_handler: McpHandler) -> None:
        frame = self._checked("agent", socket, raw)
        if frame is None:
            return
        match agentctl.kind(frame):
            case Kind.EVENT:
                handler(frame, raw)
            case Kind.REPLY:
                assert self._requests is not None
                if not self._requests.replied(frame.value):
                    log.debug("a reply that nobody waits for", action=frame.value.get("action"))
            case Kind.REQUEST:
                self.reverse.asked(frame.value, mcp_handler)
            case Kind.NEITHER:
                log.debug("a notification on the agent stream", action=frame.value.get("action"))

    async def send_stream_request(
        self, action: str, payload: dict[str, Any] | None, timeout: float
    ) -> dict[str, Any]:
        """One request to the agent. Raises Refused, Unavailable (certainly not sent), FateUnknown, TimedOut."""
        if self._requests is None or self._agent is None or not self._agent.open:
            raise Unavailable("the agent is not connected")
        return await self._requests.request(action, payload, timeout)

    def _to_agent(self, text: bytes) -> None:
        if self._agent is None:
            raise Unavailable("the agent is not connected")
        self._agent.send(text)

    def agent_open(self) -> bool:
        return self._agent is not None and self._agent.open

    def pause_agent(self) -> None:
        """Stop reading the agent's socket: its events have no room."""
        if self._agent is not None:
            self._agent.pause()

    def resume_agent(self) -> None:
        if self._agent is not None:
            self._agent.resume()

    # The workspace's socket

    async def stream_workspace(self, callbacks: WorkspaceStreamCallbacks) -> Socket:
        """Connect the workspace's socket."""
        holder: list[Socket] = []
        early: list[bytes] = []

        def received(raw: bytes) -> None:
            if not holder:
                early.append(raw)
                return
            frame = self._checked("workspace", holder[0], raw)
            if frame is not None and frame.type != "pong":
                callbacks.dispatch(frame, raw)

        socket = await self._dial(agentctl.WORKSPACE_STREAM, received)
        self._workspace = socket
        holder.append(socket)
        self._execution.on_workspace()
        for raw in early:
            received(raw)
        return socket

    async def _dial_workspace(self) -> Socket:
        return await self.stream_workspace(self._execution.callbacks)

    async def _tend_workspace(self, socket: Socket) -> str:
        return await self._tend("workspace", socket, self.ping)

    def write_shell_input(self, data: str) -> None:
        """Raises Unavailable, Refused (busy)."""
        self._to_workspace(agentctl.shell_input(data, _now_ms()))

    def resize_shell(self, cols: int, rows: int) -> None:
        """Raises Unavailable, Refused (busy)."""
        self._to_workspace(agentctl.shell_resize(cols, rows, _now_ms()))

    def ping(self) -> None:
        """The workspace socket's heartbeat."""
        if self._workspace is not None and self._workspace.open:
            try:
                self._workspace.send(agentctl.ping(_now_ms()))
            except (Unavailable, Refused):
                pass  # the watch sees it: nothing will be heard

    def _to_workspace(self, text: bytes) -> None:
        if self._workspace is None:
            raise Unavailable("the workspace is not connected")
        self._workspace.send(text)

    # Both

    async def _tend(self, stream: str, socket: Socket, ping: Callable[[], None]) -> str:
        reason = await socket.watch(ping, self._limits.heartbeat, self._limits.dead)
        await socket.finished()
        if socket.too_big:
            self._execution.on_invalid(stream, gap("too_large", events=1))
            reason = "the daemon sent a frame above the limit"
        return reason

    def _checked(self, stream: str, socket: Socket, raw: bytes) -> Frame | None:
        """The frame, where it is one. Bad bytes on the socket's own level end the socket; a bad event is told."""
        if socket.unused:
            self._execution.on_invalid(stream, gap("owner_lost", events=socket.unused))
            socket.unused = 0
        try:
            return agentctl.peek(raw)
        except BadMessage as exc:
            INVALID.labels(stream).inc()
            log.warning("a daemon sent what is no event", stream=stream, error=exc.message, bytes=len(raw))
            if not agentctl.is_utf8(raw):
                socket.drop("a text frame that is not UTF-8", WSCloseCode.INVALID_TEXT)
            self._execution.on_invalid(stream, gap("invalid", events=1, bytes=len(raw)))
            return None


async def _both(agent: Supervisor, workspace: Supervisor, ready: asyncio.Event) -> None:
    while not (agent.up.is_set() and workspace.up.is_set()):
        await agent.up.wait()
        await workspace.up.wait()
    ready.set()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
