"""The agent of one instance: its process, the talk with it, and the stream on which the backend follows.

The face that the instance uses. Events outlive processes and connections: they wait in one queue.
"""

import asyncio
import shlex
from collections.abc import Mapping
from typing import Any

import structlog
from starlette.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from tieline_agentctl import clock, wall
from tieline_agentctl.agent_process import AgentProcess
from tieline_agentctl.agent_requests import AgentRequests
from tieline_agentctl.agent_settings import AgentFailure, AgentSettings, command_line
from tieline_agentctl.agent_stream import GOING_AWAY, REPLACED, AgentStream
from tieline_agentctl.conversation import Conversation
from tieline_agentctl.epoch import HEADER, Epochs, epoch_of
from tieline_agentctl.event_queue import EventQueue
from tieline_agentctl.mcp_tunnel import McpTunnel
from tieline_agentctl.redact import redacted
from tieline_agentctl.scope import Scope

__all__ = ["Agent", "AgentFailure", "AgentSettings"]

log = structlog.get_logger()

_EXIT_PATIENCE = 2.0  # an agent that closed its stdout gets this long to end
_SILENT_GRACE = 0.5
_LOGGED_LINES = 5
_DRAIN_PATIENCE = 1.0  # at a stop, the rest of its output gets this long to find room


def timestamp() -> str:
    return clock.nano(wall.now())


def _shown(lines: list[str]) -> list[str]:
    """The last lines, fit for our own log."""
    return [redacted(line)[0] for line in lines[-_LOGGED_LINES:]]


class Agent:
    """Opened with `async with`; leaving it ends the process, the tasks and the stream."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._command = settings.default_command
        self._env: dict[str, str] = {}
        self._scope = Scope()
        self._changing = asyncio.Lock()
        self._state = "stopped"
        self._process: AgentProcess | None = None
        self._conversation: Conversation | None = None
        self._watch: asyncio.Task[Any] | None = None
        self._events = EventQueue()
        self._tunnel = McpTunnel(self._events, timestamp)
        self._requests = AgentRequests(
            self._talking,
            lambda: self._process.stderr if self._process else [],
            lambda: self._tunnel.fail_all("session reset"),
            f"{settings.workspace}/.kandev/attachments/{settings.session_id}",
        )
        self._epochs = Epochs()
        self._stream: AgentStream | None = None
        self._handing_over = asyncio.Lock()

    async def __aenter__(self) -> "Agent":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
        self._tunnel.fail_all("shutting down")
        if self._stream is not None:
            await self._stream.give_way(*GOING_AWAY)
        await self._scope.close()

    # the process

    @property
    def command(self) -> str:
        """The command line of the agent, as it is or would be started."""
        return shlex.join(self._command)

    @property
    def _running(self) -> bool:
        return self._process is not None and self._process.exit_code is None

    def configure(
        self,
        *,
        command: str,
        agent_args: list[str] | None,
        env: Mapping[str, str] | None = None,
        approval_policy: str = "",
    ) -> None:
        """What the next start runs. `approval_policy` is the agents' own notion; ours is asked by permissions."""
        if self._running:
            raise AgentFailure("cannot configure while agent is running")
        self._command = command_line(command, agent_args)
        self._env = dict(env or {})

    async def start(self) -> str:
        """The command line that was started."""
        async with self._changing:
            if self._running:
                raise AgentFailure("agent is already running")
            if not self._command:
                raise AgentFailure("no agent command is configured")
            self._state = "starting"
            try:
                process = await AgentProcess.start(
                    self._command, self._settings.workspace, {**self._settings.env, **self._env}
                )
            except (OSError, ValueError) as error:
                self._state = "error"
                raise AgentFailure(f"failed to start agent: {error}") from error
            self._process = process
            self._conversation = Conversation(self._settings, process, self._events, timestamp)
            self._state = "running"
            self._watch = self._scope.spawn(self._until_gone(process, self._conversation), "agent watch")
            return self.command

    async def stop(self) -> None:
        """Fine when nothing runs. Afterwards no process of the session is left, and no request of its tools."""
        async with self._changing:
            await self._end_process()
            self._tunnel.fail_all("agent stopped")

    async def _end_process(self) -> None:
        process, conversation, watch = self._process, self._conversation, self._watch
        if process is None or conversation is None or watch is None:
            return
        if self._running:
            self._state = "stopping"
            talked = conversation.capabilities is not None  # else it has nothing that it could save
            await process.stop(self._settings.stop_grace if talked else _SILENT_GRACE)
        self._state = "stopped"
        await asyncio.wait([watch], timeout=_DRAIN_PATIENCE)
        if not watch.done():
            log.warning("the agent's last output found no room and is lost")
            watch.cancel()
            await asyncio.wait([watch])
        self._watch = None

    async def _until_gone(self, process: AgentProcess, conversation: Conversation) -> None:
        stderr = self._scope.spawn(process.read_stderr(), "agent stderr")
        exited = self._scope.spawn(process.exited(), "agent exit")
        ended = self._scope.spawn(process.output_ended.wait(), "agent output")
        try:
            await asyncio.wait([exited, ended], return_when=asyncio.FIRST_COMPLETED)
            if not exited.done():
                await process.stop(_EXIT_PATIENCE)
            code = await exited
            if self._process is process and self._state == "running":
                self._state = "error" if code else "stopped"
            await ended
            await asyncio.wait([stderr], timeout=_DRAIN_PATIENCE)
        finally:
            for task in (stderr, exited, ended):
                task.cancel()
            self._tell_exit(process, conversation)
            await conversation.close()
            process.close()

    def _tell_exit(self, process: AgentProcess, conversation: Conversation) -> None:
        code = -1 if process.exit_code is None else process.exit_code
        lines = process.stderr
        asked_for = self._process is process and self._state in ("stopping", "stopped")
        if code and not asked_for:
            log.warning("the agent ended", command=self._command[0], code=code, stderr=_shown(lines))
        error = f"Agent process exited with code {code}" + (": " + "\n".join(lines) if lines else "")
        conversation.exited(
            error, {"exit_code": code, "recent_stderr": lines}, tell_always=code != 0 and not asked_for
        )

    def _talking(self) -> Conversation | None:
        return self._conversation if self._running else None

    @property
    def waiting(self) -> int:
        """Frames that no backend has taken yet."""
        return len(self._events)

    def status(self) -> dict[str, Any]:
        """The body of `GET /status`."""
        process, conversation = self._process, self._conversation
        code = process.exit_code if process else None
        info: dict[str, Any] = {"status": self._state, "exit_code": -1 if code is None else code}
        if process is not None and code is None:
            info["pid"] = process.pid
        if code:
            info["exit_error"] = f"exit status {code}"
        return {
            "agent_status": self._state,
            "process_info": info,
            "busy": conversation.turns.prompts.busy if conversation else False,
            "prompt_generation": conversation.turns.prompts.generation if conversation else 0,
        }

    # the stream

    async def serve_stream(self, websocket: WebSocket) -> None:
        """Serve one connection, from before its acceptance to its end. The newest one has the stream."""
        epoch = epoch_of(websocket.headers.get(HEADER))
        if not self._epochs.admits(epoch):
            await websocket.send_denial_response(JSONResponse(self._epochs.refusal(epoch), 409))
            return
        try:
            await websocket.accept()
        except WebSocketDisconnect:
            return
        stream = AgentStream(websocket, self._events, self._tunnel, self._requests.carry_out, timestamp)
        async with self._handing_over:
            if epoch < self._epochs.highest:
                await websocket.close(*REPLACED)
                return
            if self._stream is not None:
                await self._stream.give_way(*REPLACED)
            self._stream = stream
        try:
            await stream.serve()
        finally:
            if self._stream is stream:
                self._stream = None

    async def mcp_request(self, action: str, payload: Any) -> Any:
        """Ask the backend; `McpFailed` of mcp_tunnel.py when it refuses or will not answer."""
        conversation = self._conversation
        traceparent = conversation.turns.traceparent if conversation else None
        return await self._tunnel.request(action, payload, traceparent)
