"""The workspace's socket: what happens there, and what is typed into its shell."""

from __future__ import annotations

import time

from tieline_protocol import agentctl
from tieline_protocol.agentctl import Frame
from tieline_protocol.errors import Refused, Unavailable

from tieline_streams.sockets import Socket
from tieline_streams.stream import Stream
from tieline_streams.workspace_callbacks import WorkspaceStreamCallbacks


class WorkspaceStream(Stream):
    name = "workspace"
    path = agentctl.WORKSPACE_STREAM
    vital = False  # the agent works on without its screen

    async def connect(self, callbacks: WorkspaceStreamCallbacks) -> Socket:
        """Frames go to `callbacks`. Raises Fatal, Unavailable."""

        def received(frames: list[Frame]) -> None:
            callbacks.dispatch([frame for frame in frames if frame.type != "pong"])

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
            try:
                self.socket.send(agentctl.ping(_now_ms()))
            except (Unavailable, Refused):
                pass  # the watch sees it: nothing will be heard


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
