"""The ACP connection to one agent process, through the `acp` package.

The package gives every message a task of its own at once, so order and back-pressure are kept here, in the
transport: `session/update` and `session/request_permission` are handed to the listener as they are read, raw and
in order, and never reach the package; the next line is read only when there is room for its events.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Protocol, cast

import structlog
from acp import PROTOCOL_VERSION, RequestError, connect_to_agent
from acp.schema import ClientCapabilities, FileSystemCapabilities, Implementation
from pydantic import BaseModel, ValidationError

from tieline_agentctl import jsontext
from tieline_agentctl.agent_process import AgentProcess

log = structlog.get_logger()

_AUTH_REQUIRED = -32000
_written: ContextVar[Callable[[], None] | None] = ContextVar("written", default=None)


class AcpFailed(Exception):
    """The agent refused a request, or answered it with something that is no answer."""

    def __init__(self, message: str, auth_required: bool = False) -> None:
        super().__init__(message)
        self.auth_required = auth_required


class AgentGone(Exception):
    """The agent cannot be reached any more: its process has ended or closed its pipes."""


class Listener(Protocol):
    """Who hears what the agent says by itself. Neither method waits."""

    def update(self, session_id: str, update: dict[str, Any]) -> None: ...

    def permission(self, rpc_id: Any, params: dict[str, Any]) -> None: ...


class _NoTerminals:
    """The client that the package sees. It would answer an unknown terminal with null; an error is the truth."""

    def on_connect(self, conn: Any) -> None: ...

    async def _refused(self, **_: Any) -> Any:
        raise RequestError(-32601, "this client has no terminals")

    create_terminal = terminal_output = release_terminal = wait_for_terminal_exit = kill_terminal = _refused


class _Transport:
    """Lines of JSON to and from the process, as the package wants them."""

    def __init__(
        self, process: AgentProcess, listener: Listener, room: Callable[[], Awaitable[None]]
    ) -> None:
        self._process = process
        self._listener = listener
        self._room = room
        self._answered = False

    async def send(self, message: dict[str, Any]) -> None:
        await self._process.write(jsontext.dumps(message))
        written = _written.get()
        if written is not None:
            written()

    async def receive(self) -> dict[str, Any] | None:
        if self._answered:
            # Whoever waited for that answer acts on it (ends the turn) before anything that came after it.
            self._answered = False
            await asyncio.sleep(0)
        while True:
            await self._room()
            line = await self._process.line()
            if line is None:
                return None
            message = self._parsed(line)
            if message is None or self._heard(message):
                continue
            self._answered = "method" not in message
            return message

    async def close(self) -> None:
        """The process is closed by its owner."""

    def _parsed(self, line: bytes) -> dict[str, Any] | None:
        if not line.strip():
            return None
        try:
            message = jsontext.loads(line, keep_surrogates=True)
        except jsontext.BadJson as error:
            log.warning("the agent wrote a line that is not JSON", error=str(error), bytes=len(line))
            return None
        if not isinstance(message, dict):
            log.warning("the agent wrote JSON that is no message", bytes=len(line))
            return None
        return message

    def _heard(self, message: dict[str, Any]) -> bool:
        """Whether the message was for the listener, or for nobody."""
        method = message.get("method")
        if method is None:
            return False
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if method == "session/update":
            update = params.get("update")
            if isinstance(update, dict):
                session_id = params.get("sessionId")
                self._listener.update(session_id if isinstance(session_id, str) else "", update)
            else:
                log.warning("the agent sent an update without content")
            return True
        if method == "session/request_permission" and "id" in message:
            self._listener.permission(message["id"], params)
            return True
        if "id" not in message:
            log.debug("a notification of the agent that means nothing to us", method=method)
            return True
        return False


class Acp:
    """Requests to the agent; what it says by itself goes to the listener."""

    def __init__(
        self, process: AgentProcess, listener: Listener, room: Callable[[], Awaitable[None]]
    ) -> None:
        self._transport = _Transport(process, listener, room)
        self._connection = connect_to_agent(cast(Any, _NoTerminals()), self._transport)

    async def initialize(self, name: str, version: str) -> dict[str, Any]:
        return await _answer(
            self._connection.initialize(
                protocol_version=PROTOCOL_VERSION,
                client_capabilities=ClientCapabilities(
                    fs=FileSystemCapabilities(read_text_file=False, write_text_file=False), terminal=False
                ),
                client_info=Implementation(name=name, version=version),
            )
        )

    async def new_session(self, cwd: str, mcp_servers: list[dict[str, Any]]) -> dict[str, Any]:
        return await _answer(self._connection.new_session(cwd=cwd, mcp_servers=cast(Any, mcp_servers)))

    async def load_session(
        self, session_id: str, cwd: str, mcp_servers: list[dict[str, Any]]
    ) -> dict[str, Any]:
        return await _answer(
            self._connection.load_session(cwd=cwd, session_id=session_id, mcp_servers=cast(Any, mcp_servers))
        )

    async def prompt(
        self,
        session_id: str,
        content: list[dict[str, Any]],
        written: Callable[[], None],
        traceparent: str | None,
    ) -> dict[str, Any]:
        """Returns at the end of the turn; `written` is called once the agent has the prompt in its pipe.

        The agent hears of the trace as the protocol says: `_meta.traceparent`.
        """
        meta = {} if traceparent is None else {"traceparent": traceparent}
        token = _written.set(written)
        try:
            return await _answer(self._connection.prompt(session_id, cast(Any, content), **meta))
        finally:
            _written.reset(token)

    async def cancel(self, session_id: str) -> None:
        await _answer(self._connection.cancel(session_id=session_id))

    async def set_mode(self, session_id: str, mode_id: str) -> None:
        await _answer(self._connection.set_session_mode(session_id=session_id, mode_id=mode_id))

    async def set_config_option(self, session_id: str, config_id: str, value: str | bool) -> dict[str, Any]:
        return await _answer(
            self._connection.set_config_option(session_id=session_id, config_id=config_id, value=value)
        )

    async def authenticate(self, method_id: str) -> None:
        await _answer(self._connection.authenticate(method_id=method_id))

    async def answer_permission(self, rpc_id: Any, option_id: str | None) -> None:
        """None: the permission was cancelled."""
        outcome = (
            {"outcome": "cancelled"} if option_id is None else {"outcome": "selected", "optionId": option_id}
        )
        try:
            await self._transport.send({"jsonrpc": "2.0", "id": rpc_id, "result": {"outcome": outcome}})
        except (OSError, RuntimeError) as error:
            raise AgentGone(str(error)) from error

    async def close(self) -> None:
        await self._connection.close()


async def _answer(asked: Awaitable[BaseModel | None]) -> dict[str, Any]:
    """The answer as the agent spelled it; every error of the package as one of ours."""
    try:
        answer = await asked
    except RequestError as error:
        raise AcpFailed(_told(error), auth_required=error.code == _AUTH_REQUIRED) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise AcpFailed(f"malformed: {where}: {first['msg']}") from error
    except (OSError, RuntimeError) as error:
        # The event loop says RuntimeError when it writes to a pipe that it has closed already.
        raise AgentGone(str(error)) from error
    if answer is None:
        return {}
    return answer.model_dump(mode="json", by_alias=True, exclude_none=True)


def _told(error: RequestError) -> str:
    data = error.data
    detail = data.get("details") or data.get("message") if isinstance(data, dict) else data
    return f"{error}: {detail}" if isinstance(detail, str) and detail else str(error)
