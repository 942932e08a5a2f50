"""The agent side of ACP: sessions, prompts, cancel. What a prompt does is in turn.py."""

import asyncio
import uuid
from pathlib import Path
from typing import Any, cast

from acp import AgentSideConnection, RequestError
from acp.schema import (
    AgentCapabilities,
    AuthenticateResponse,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    Usage,
)

from tieline_agentctl.example_agent.language import directives
from tieline_agentctl.example_agent.session import Session
from tieline_agentctl.example_agent.store import Store
from tieline_agentctl.example_agent.turn import Turn

_MODES = {"default": "Asks before it acts", "plan": "Only plans"}
_MODELS = {"example-small": "Small", "example-large": "Large"}
_EFFORTS = {"low": "Low", "high": "High"}


class ExampleAgent:
    """Real ACP, no model."""

    def __init__(self, store: Store, queueing: bool = True, must_log_in: bool = False) -> None:
        self._store = store
        self._queueing = queueing
        self._must_log_in = must_log_in
        self._sessions: dict[str, Session] = {}
        self._turns: dict[str, Turn] = {}
        self._late: set[asyncio.Task[None]] = set()
        self._client: AgentSideConnection | None = None

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        return InitializeResponse(
            protocol_version=min(protocol_version, 1),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=True),
                field_meta={"promptQueueing": True} if self._queueing else None,
            ),
            agent_info=Implementation(name="tieline-example-agent", version="1"),
            auth_methods=cast(Any, [{"id": "nothing", "name": "Nothing to log in to"}]),
        )

    async def authenticate(self, method_id: str, **_: Any) -> AuthenticateResponse:
        self._must_log_in = False
        return AuthenticateResponse()

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> NewSessionResponse:
        if self._must_log_in:
            raise RequestError.auth_required()
        session = self._opened(f"example-{uuid.uuid4().hex[:12]}", cwd, [], mcp_servers)
        self._store.save(session.id, [])
        return NewSessionResponse(
            session_id=session.id, modes=_modes(session), config_options=_options(session)
        )

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Any = None, **_: Any
    ) -> LoadSessionResponse:
        history = self._store.load(session_id)
        if history is None:
            raise RequestError.resource_not_found(session_id)
        session = self._opened(session_id, cwd, history, mcp_servers)
        await session.replay()
        return LoadSessionResponse(modes=_modes(session), config_options=_options(session))

    def _opened(self, session_id: str, cwd: str, history: list[dict[str, Any]], servers: Any) -> Session:
        client = cast(AgentSideConnection, self._client)
        session = Session(session_id, cwd, client, history, list(servers or []))
        self._sessions[session_id] = session
        return session

    async def set_session_mode(self, mode_id: str, session_id: str, **_: Any) -> SetSessionModeResponse:
        if mode_id not in _MODES:
            raise RequestError.invalid_params({"details": f"no such mode: {mode_id}"})
        self._session(session_id).mode = mode_id
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        session = self._session(session_id)
        if config_id == "model" and value in _MODELS:
            session.model = str(value)
        elif config_id == "effort" and value in _EFFORTS:
            session.effort = str(value)
        else:
            raise RequestError.invalid_params({"details": f"no such option or value: {config_id} {value}"})
        return SetSessionConfigOptionResponse(config_options=_options(session))

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> PromptResponse:
        session = self._session(session_id)
        before = self._turns.get(session_id)
        if before is not None:
            if not self._queueing:
                raise RequestError.invalid_request({"details": "a prompt is running"})
            before.cancelled.set()  # the newer prompt takes over
        text = "\n".join(block.text for block in prompt if block.type == "text")
        turn = self._turns[session_id] = Turn(
            session, late=lambda wait, said: self._say_late(session, wait, said)
        )
        session.heard(text)
        try:
            reason = await turn.carry_out(directives(text))
        finally:
            if self._turns.get(session_id) is turn:
                del self._turns[session_id]
            self._store.save(session_id, session.history)
        used, _size = turn.usage or (len(text) + turn.said, 0)
        given = min(used, len(text))
        usage = Usage(input_tokens=given, output_tokens=used - given, total_tokens=used)
        return PromptResponse(stop_reason=cast(Any, reason), usage=usage)

    async def cancel(self, session_id: str, **_: Any) -> None:
        turn = self._turns.get(session_id)
        if turn is not None:
            turn.cancelled.set()

    def _session(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise RequestError.resource_not_found(session_id)
        return session

    def _say_late(self, session: Session, wait: float, text: str) -> None:
        async def say() -> None:
            await asyncio.sleep(wait)
            await session.say(text)

        task = asyncio.get_running_loop().create_task(say(), name="late words")
        self._late.add(task)
        task.add_done_callback(self._late.discard)


def _modes(session: Session) -> SessionModeState:
    modes = [SessionMode(id=id, name=id.capitalize(), description=told) for id, told in _MODES.items()]
    return SessionModeState(current_mode_id=session.mode, available_modes=modes)


def _options(session: Session) -> list[Any]:
    return [
        _option("model", "Model", "model", session.model, _MODELS),
        _option("effort", "Effort", "thought_level", session.effort, _EFFORTS),
    ]


def _option(
    id: str, name: str, category: Any, current: str, values: dict[str, str]
) -> SessionConfigOptionSelect:
    options = [SessionConfigSelectOption(value=value, name=told) for value, told in values.items()]
    return SessionConfigOptionSelect(
        type="select", id=id, name=name, category=category, current_value=current, options=options
    )


def store(directory: str | None) -> Store:
    return Store(Path(directory) if directory else None)
