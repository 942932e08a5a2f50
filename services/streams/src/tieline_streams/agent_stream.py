"""The agent's socket: its events, our requests to it with their replies, and what its daemon asks of us."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import structlog
from tieline_protocol import agentctl
from tieline_protocol.agentctl import Frame, Kind
from tieline_protocol.errors import Unavailable
from tieline_protocol.numbering import gap

from tieline_streams.config import Limits
from tieline_streams.execution import Execution
from tieline_streams.requests import Requests
from tieline_streams.reverse_requests import McpHandler, ReverseRequests
from tieline_streams.sockets import Socket
from tieline_streams.stream import Stream
from tieline_streams.workspace_callbacks import UpdateHandler

log = structlog.get_logger()


class AgentStream(Stream):
    name = "agent"
    path = agentctl.AGENT_STREAM

    def __init__(self, execution: Execution, limits: Limits) -> None:
        super().__init__(execution, limits)
        self._requests: Requests | None = None
        self.reverse = ReverseRequests(self.send)

    async def connect(
        self, handler: UpdateHandler, mcp_handler: McpHandler, on_disconnect: Callable[[str], None]
    ) -> Socket:
        """Events go to `handler`, the daemon's requests to `mcp_handler`. Raises Fatal, Unavailable."""

        def received(frames: list[Frame]) -> None:
            for kind, some in itertools.groupby(frames, agentctl.kind):
                if kind is Kind.EVENT:
                    handler(list(some))
                    continue
                for frame in some:
                    other(kind, frame)

        def other(kind: Kind, frame: Frame) -> None:
            match kind:
                case Kind.REPLY:
                    assert self._requests is not None
                    if not self._requests.replied(frame.value):
                        log.debug("a reply that nobody waits for", action=frame.value.get("action"))
                case Kind.REQUEST:
                    self.reverse.asked(frame.value, mcp_handler)
                case _:
                    log.debug("a notification on the agent stream", action=frame.value.get("action"))

        def up() -> None:
            assert self.socket is not None
            self._requests = requests = Requests(self.socket.send)

            def gone(lost: asyncio.Future[str]) -> None:
                requests.dropped()
                on_disconnect(lost.result())

            self._execution.on_connect()
            self.socket.lost.add_done_callback(gone)
            self.reverse.connected()

        return await self._connect(received, up)

    async def dial(self) -> Socket:
        execution = self._execution
        return await self.connect(execution.handler, execution.mcp_handler, execution.on_disconnect)

    def ping(self) -> None:
        """A WebSocket ping: the daemon answers it without our asking."""
        if self.socket is not None:
            self.socket.send_ping()

    def broke(self) -> None:
        """Its daemon takes what it has written for delivered."""
        self._execution.on_invalid(self.name, gap("daemon"))

    async def request(self, action: str, payload: dict[str, Any] | None, timeout: float) -> dict[str, Any]:
        """Raises Refused, Unavailable (certainly not sent), FateUnknown, TimedOut."""
        if self._requests is None or not self.open:
            raise Unavailable("the agent is not connected")
        return await self._requests.request(action, payload, timeout)

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return len(self._requests) if self._requests is not None else 0

    @property
    def open(self) -> bool:
        return self.socket is not None and self.socket.open
