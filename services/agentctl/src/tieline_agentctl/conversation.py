"""The talk with one agent process: its ACP sessions, and what it says by itself.

What the agent says becomes events in the order in which it says it: `update` and `permission` never wait. Prompts
are run in turns.py, permissions answered in desk.py; the backend's requests come in through agent_requests.py.
"""

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tieline_agentctl import mcp_servers
from tieline_agentctl.acp import Acp, AcpFailed
from tieline_agentctl.acp_shapes import auth_methods, mapping, present, prompt_queueing, text
from tieline_agentctl.agent_events import NotOffered, Translator, is_history, is_plan, starts_a_turn
from tieline_agentctl.agent_process import AgentProcess
from tieline_agentctl.agent_settings import AgentSettings
from tieline_agentctl.desk import Desk
from tieline_agentctl.event_queue import EventQueue
from tieline_agentctl.events import event
from tieline_agentctl.prompts import Prompt
from tieline_agentctl.scope import Scope
from tieline_agentctl.turns import Hooks, Turns

CLOSED_PIPES_GRACE = 1.0
_MOST_SESSIONS = 8


class Conversation:
    """Lives as long as the agent process. `timestamp` gives the time of day as the wire writes it."""

    def __init__(
        self, settings: AgentSettings, process: AgentProcess, events: EventQueue, timestamp: Callable[[], str]
    ) -> None:
        self._settings = settings
        self._events = events
        self._timestamp = timestamp
        self._scope = Scope()
        self._acp = Acp(process, self, events.room)
        self.desk = Desk(settings, self._acp, events, self._scope, timestamp)
        hooks = Hooks(self._forget_silence, self._prompt_written, self._close_tools, self.desk.cancel_all)
        self.turns = Turns(
            self._acp, events, self._scope, hooks, unusable=lambda: process.stop(CLOSED_PIPES_GRACE)
        )
        self._translators: OrderedDict[str, Translator] = OrderedDict()
        self._auth_methods: list[dict[str, Any]] = []
        self._queueing = False
        self._loading = ""  # the session whose history is being replayed, until its first prompt
        self._replayed_plan: dict[str, Any] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self.capabilities: dict[str, Any] | None = (
            None  # what the agent said of itself; None before `initialize`
        )
        self.session_id = ""

    def _translator(self, session_id: str) -> Translator:
        translator = self._translators.get(session_id)
        if translator is None:
            translator = self._translators[session_id] = Translator(session_id)
            if len(self._translators) > _MOST_SESSIONS:
                self._translators.popitem(last=False)
        return translator

    # what the agent says by itself

    def update(self, session_id: str, update: dict[str, Any]) -> None:
        kind = update.get("sessionUpdate")
        if kind in ("foreground_idle", "background_complete"):
            self._background(session_id, str(kind), update)
            return
        told = self._translator(session_id).event_of(update)
        if session_id == self._loading and is_plan(update):
            self._replayed_plan = told
        elif session_id != self._loading or not is_history(update):
            self._events.put_event(told)
            if self.turns.prompts.current is None and (self._idle is not None or starts_a_turn(update)):
                self._expect_silence(session_id)

    def _background(self, session_id: str, kind: str, update: dict[str, Any]) -> None:
        hand_over = kind == "foreground_idle" and update.get("promptHandoff") is True
        if hand_over:
            self.turns.prompts.foreground_idle()
        current = self.turns.prompts.current
        self._events.put_event(
            event(
                kind,
                session_id=session_id,
                prompt_generation=current.generation if current else 0,
                data={"prompt_handoff": True} if hand_over else None,
            )
        )

    def _expect_silence(self, session_id: str) -> None:
        """Output outside of any prompt is ended by a `complete` of ours once the agent falls silent."""
        self._forget_silence()
        loop = asyncio.get_running_loop()
        self._idle = loop.call_later(self._settings.async_idle, self._silent, session_id)

    def _forget_silence(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _silent(self, session_id: str) -> None:
        self._idle = None
        data = {"stop_reason": "end_turn", "synthetic": True, "synthetic_reason": "async_turn_idle"}
        self._events.put_event(event("complete", session_id=session_id, data=data))

    def permission(self, rpc_id: Any, params: dict[str, Any]) -> None:
        session_id, asked = text(params.get("sessionId")), mapping(params.get("toolCall"))
        tools = self._translator(session_id).tools
        if not tools.knows(text(asked.get("toolCallId"))):
            self._events.put_event(tools.announced(session_id, asked))
        self.desk.asked(rpc_id, params, tools.known(asked))

    # sessions

    async def initialize(self, client_name: str, client_version: str) -> dict[str, Any]:
        """Who the agent is."""
        answer = await self._acp.initialize(client_name or "tieline", client_version or "0")
        self.capabilities = mapping(answer.get("agentCapabilities"))
        self._queueing = prompt_queueing(self.capabilities)
        self._auth_methods = auth_methods(answer.get("authMethods"))
        prompting = mapping(self.capabilities.get("promptCapabilities"))
        self._events.put_event(
            event("agent_capabilities", auth_methods=self._auth_methods)
            | {
                "supports_image": prompting.get("image") is True,
                "supports_audio": prompting.get("audio") is True,
                "supports_embedded_context": prompting.get("embeddedContext") is True,
                "supports_prompt_queueing": self._queueing,
            }
        )
        info = mapping(answer.get("agentInfo"))
        return {
            "name": text(info.get("name")) or "unknown",
            "version": text(info.get("version")) or "unknown",
        }

    async def new_session(self, asked_servers: list[dict[str, Any]]) -> dict[str, Any]:
        """The members of the answer to `agent.session.new`."""
        servers, attempt = self._servers(asked_servers)
        try:
            answer = await self._acp.new_session(str(self._settings.workspace), servers)
        except AcpFailed as failure:
            self._refused(failure)
            raise
        self._loading, self._replayed_plan = "", None
        return self._begun(text(answer.get("sessionId")), answer, "new", attempt)

    async def load_session(self, session_id: str, asked_servers: list[dict[str, Any]]) -> dict[str, Any]:
        """The same of `agent.session.load`. The agent repeats the session's history; nobody hears it."""
        if not mapping(self.capabilities).get("loadSession"):
            raise AcpFailed("the agent cannot load sessions")
        servers, attempt = self._servers(asked_servers)
        self._loading, self._replayed_plan = session_id, None
        loaded = False
        try:
            answer = await self._acp.load_session(session_id, str(self._settings.workspace), servers)
            loaded = True
        except AcpFailed as failure:
            self._refused(failure)
            raise
        finally:
            if not loaded:
                self._loading = ""
        return self._begun(session_id, answer, "resumed", attempt)

    def _refused(self, failure: AcpFailed) -> None:
        if failure.auth_required:
            self._events.put_event(
                event("auth_required", auth_methods=self._auth_methods, error=str(failure))
            )

    def _servers(self, asked: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        capabilities = mapping(mapping(self.capabilities).get("mcpCapabilities"))
        return mcp_servers.given(asked, self._settings.mcp_servers, self._settings.port, capabilities)

    def _begun(
        self, session_id: str, answer: dict[str, Any], status: str, attempt: list[dict[str, Any]]
    ) -> dict[str, Any]:
        self.session_id = session_id
        translator = self._translator(session_id)
        attempt_id, now = str(uuid.uuid4()), self._timestamp()
        for attachment in attempt:
            told = {"attachment_attempt_id": attempt_id, "occurred_at": now, **attachment}
            self._events.put_event(event("mcp_attachment", mcp_attachment=told))
        for one in translator.set_up(answer):
            self._events.put_event(one)
        if self._replayed_plan is not None:
            self._events.put_event(self._replayed_plan)
            self._replayed_plan = None
        data = {"session_status": status, "init": True}
        self._events.put_event(
            event("session_status", session_id=session_id, session_status=status, data=data)
        )
        return {"session_id": session_id} | present(model_state=translator.model_state())

    async def set_mode(self, mode_id: str) -> None:
        """Raises NotOffered, as the next three."""
        session_id = self.session_id
        self._translator(session_id).check_mode(mode_id)
        await self._acp.set_mode(session_id, mode_id)
        self._events.put_event(self._translator(session_id).mode_set(mode_id))

    async def set_model(self, model_id: str) -> None:
        """ACP has no models of its own: the config option of the category `model` chooses."""
        option = self._translator(self.session_id).model_option()
        if option is None:
            raise AcpFailed("the agent offers no choice of models")
        await self.set_config_option(str(option["id"]), model_id)

    async def set_config_option(self, config_id: str, value: str) -> None:
        session_id = self.session_id
        translator = self._translator(session_id)
        translator.check_option(config_id, value)
        kind = next((option["type"] for option in translator.config_options if option["id"] == config_id), "")
        given: str | bool = value == "true" if kind == "boolean" else value
        answer = await self._acp.set_config_option(session_id, config_id, given)
        self._events.put_event(translator.options_set(config_id, answer))

    async def authenticate(self, method_id: str) -> None:
        known = [method["id"] for method in self._auth_methods]
        if method_id not in known:
            raise NotOffered(f"no such method: {method_id:.100}; there are {', '.join(known) or 'none'}")
        await self._acp.authenticate(method_id)

    # prompts

    def prompt(self, prompt: Prompt) -> None:
        """Take a prompt for the present session; TooManyWaiting."""
        self.turns.submit(prompt, self.session_id, self._queueing)

    def _prompt_written(self) -> None:
        self._loading = ""

    def _close_tools(self, session_id: str, leave_detached: bool) -> None:
        for one in self._translator(session_id).tools.cancelled(session_id, leave_detached):
            self._events.put_event(one)

    # the end

    def exited(self, error: str, data: dict[str, Any], tell_always: bool) -> None:
        """The process is gone and all of its output was read. Every prompt ends here, running or waiting."""
        self._forget_silence()
        self.desk.agent_gone()
        told = self.turns.agent_gone(error, data)
        if tell_always and not told:
            self._events.put_event(event("error", error=error, data=data))

    async def close(self) -> None:
        """Stop listening; nothing is told after this."""
        self._forget_silence()
        await self._acp.close()
        await self._scope.close()
