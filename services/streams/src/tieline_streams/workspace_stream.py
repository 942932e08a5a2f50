"""The workspace's socket: what happens there, and what is typed into its shell."""

from __future__ import annotations

import asyncio
import contextlib
import time

from tieline_protocol import agentctl
from tieline_protocol.agentctl import Frame
from tieline_protocol.errors import Refused, Unavailable

from tieline_streams.config import Limits
from tieline_streams.execution import Execution
from tieline_streams.sockets import Socket
from tieline_streams.stream import Stream
from tieline_streams.workspace_callbacks import WorkspaceStreamCallbacks


class WorkspaceStream(Stream):
    name = "workspace"
    path = agentctl.WORKSPACE_STREAM
    vital = False  # the agent works on without its screen

    def __init__(self, execution: Execution, limits: Limits) -> None:
        super().__init__(execution, limits)
        self._unanswered = 0  # pings of the present socket, which are answered in order
        self._answered = asyncio.Event()

    async def connect(self, callbacks: WorkspaceStreamCallbacks) -> Socket:
        """Frames go to `callbacks`. Raises Fatal, Unavailable."""

        def received(frames: list[Frame]) -> None:
            told = [frame for frame in frames if frame.type != "pong"]
            callbacks.dispatch(told)
            if len(told) < len(frames):
                self._unanswered = max(self._unanswered - (len(frames) - len(told)), 0)
                self._answered.set()

        self._unanswered = 0
        return await self._connect(received, self._execution.on_workspace)

    async def dial(self) -> Socket:
        return await self.connect(self._execution.callbacks)

    def write_shell_input(self, data: str) -> None:
        """Raises Unavailable, Refused (busy)."""
        self.send(agentctl.shell_input(data, _now_ms()))

    def resize_shell(self, cols: int, rows: int) -> None:
        """Raises Unavailable, Refused (busy)."""
        self.send(agentctl.shell_resize(cols, rows, _now_ms()))

    def ping(self) -> None:
        if self.socket is not None and self.socket.open:
            with contextlib.suppress(Unavailable, Refused):  # the watch sees it: nothing will be heard
                self.socket.send(agentctl.ping(_now_ms()))
                self._unanswered += 1

    async def heard(self, within: float) -> None:
        """Wait until what the daemon has written to the socket by now is here; at most `within` seconds."""
        socket = self.socket
        self.ping()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._unanswered and self.socket is socket:
                    self._answered.clear()
                    await self._answered.wait()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
