"""Both sockets of one agentctl instance: the agent's, with its requests and events, and the workspace's.

They connect in parallel and live independently: what happens to one leaves the other alone. This file knows the wire
and nothing of sessions; what arrives goes to the callbacks of the `Execution`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tieline_protocol import tracing

from tieline_streams.agent_stream import AgentStream
from tieline_streams.config import Limits
from tieline_streams.execution import Execution
from tieline_streams.retry import Retry
from tieline_streams.reverse_requests import McpHandler
from tieline_streams.sockets import Socket
from tieline_streams.supervisor import Supervisor
from tieline_streams.workspace_callbacks import UpdateHandler, WorkspaceStreamCallbacks
from tieline_streams.workspace_stream import WorkspaceStream

__all__ = ["Execution", "StreamManager", "WorkspaceStreamCallbacks"]


class StreamManager:
    """The streams of one execution."""

    def __init__(self, execution: Execution, limits: Limits) -> None:
        self._limits = limits
        self._agent = AgentStream(execution, limits)
        self._workspace = WorkspaceStream(execution, limits)
        self._supervisors: dict[str, Supervisor] = {}
        self.reverse = self._agent.reverse

    # Life

    async def connect_all(self, execution: Execution, ready: asyncio.Event) -> None:
        """Connect both in parallel, set `ready` when both are up, keep both up until cancelled. Raises Fatal."""
        tracing.apart()
        agent, workspace = (
            Supervisor(
                stream.name, stream.dial, stream.tend, execution.tell, self._retry(), vital=stream.vital
            )
            for stream in (self._agent, self._workspace)
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

    def _retry(self) -> Retry:
        return Retry(random.random, self._limits.healthy, self._limits.slow_retry)

    def states(self) -> dict[str, str]:
        """How each connection is, for people."""
        return {stream: supervisor.state for stream, supervisor in self._supervisors.items()}

    async def close(self) -> None:
        """The agent's socket, then the workspace's; the HTTP client is closed after this by its owner."""
        self._close()
        await self.reverse.close()
        await self._close_sockets()

    async def _close_sockets(self) -> None:
        sockets = [stream.socket for stream in (self._agent, self._workspace) if stream.socket is not None]
        await asyncio.gather(*(socket.close(self._limits.close_handshake) for socket in sockets))

    async def leave(self) -> None:
        """End both sockets in order: the daemon keeps what it has to say. They are dialled again after `stay`."""
        for stream in (self._agent, self._workspace):
            stream.leaving = True
        await self._close_sockets()

    def stay(self) -> None:
        """This process may go on."""
        self._agent.leaving = self._workspace.leaving = False

    def _close(self) -> None:
        self._agent.closing = self._workspace.closing = True

    def redial_workspace(self) -> None:
        """The daemon looks its shell up at the connect: one that it has started since needs another connect."""
        if self._workspace.socket is not None:
            self._workspace.socket.drop("the agent was started")

    def cut(self) -> dict[str, int]:
        """Drop both sockets without a word: the session is not ours any more. Returns the frames of each not used."""
        self._close()
        return {stream.name: stream.cut() for stream in (self._agent, self._workspace)}

    # The agent's socket

    async def stream_updates(
        self, handler: UpdateHandler, mcp_handler: McpHandler, on_disconnect: Callable[[str], None]
    ) -> Socket:
        """Connect the agent's socket: events to `handler`, the daemon's requests to `mcp_handler`."""
        return await self._agent.connect(handler, mcp_handler, on_disconnect)

    async def send_stream_request(
        self, action: str, payload: dict[str, Any] | None, timeout: float
    ) -> dict[str, Any]:
        """One request to the agent. Raises Refused, Unavailable (certainly not sent), FateUnknown, TimedOut."""
        return await self._agent.request(action, payload, timeout)

    @property
    def waiting(self) -> int:
        """Requests to the agent without an answer."""
        return self._agent.waiting

    def agent_open(self) -> bool:
        return self._agent.open

    def pause_agent(self) -> None:
        """Stop reading the agent's socket: its events have no room."""
        if self._agent.socket is not None:
            self._agent.socket.pause()

    def resume_agent(self) -> None:
        if self._agent.socket is not None:
            self._agent.socket.resume()

    # The workspace's socket

    async def stream_workspace(self, callbacks: WorkspaceStreamCallbacks) -> Socket:
        """Connect the workspace's socket."""
        return await self._workspace.connect(callbacks)

    def write_shell_input(self, data: str) -> None:
        """Raises Unavailable, Refused (busy)."""
        self._workspace.write_shell_input(data)

    def resize_shell(self, cols: int, rows: int) -> None:
        """Raises Unavailable, Refused (busy)."""
        self._workspace.resize_shell(cols, rows)

    def ping(self) -> None:
        """The workspace socket's heartbeat."""
        self._workspace.ping()

    async def heard_workspace(self, within: float) -> None:
        """Wait until what the daemon has written to the workspace's socket by now is here; at most `within` seconds."""
        await self._workspace.heard(within)


async def _both(agent: Supervisor, workspace: Supervisor, ready: asyncio.Event) -> None:
    while not (agent.up.is_set() and workspace.up.is_set()):
        await agent.up.wait()
        await workspace.up.wait()
    ready.set()
