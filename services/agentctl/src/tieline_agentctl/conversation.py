"""The talk with one agent process: its ACP session, its prompts, the permissions it waits for.

What the agent says becomes events in the order in which it says it: `update` and `permission` never wait, nor does
the end of a turn. Decisions are in prompts.py, permissions.py and agent_events.py; the daemon's requests are in
agent_requests.py.
"""

import asyncio
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import structlog

from tieline_agentctl import mcp_servers
from tieline_agentctl.acp import Acp, AcpFailed, AgentGone
from tieline_agentctl.agent_events import (
    Translator,
    auth_methods,
    event,
    is_history,
    is_plan,
    mapping,
    present,
    prompt_queueing,
    starts_a_turn,
    text,
    usage,
)
from tieline_agentctl.agent_process import AgentProcess
from tieline_agentctl.agent_settings import AgentSettings
from tieline_agentctl.event_queue import EventQueue
from tieline_agentctl.permissions import DELIVERY_FAILED, Permission, Permissions, Refused, from_agent
from tieline_agentctl.prompts import Prompt, Prompts
from tieline_agentctl.scope import Scope

log = structlog.get_logger()

CANCEL_PATIENCE = 3.0
CLOSED_PIPES_GRACE = 1.0
_MOST_SESSIONS = 8


@dataclass(slots=True)
class _Run:
    """A prompt that the agent has or is about to get."""

    session_id: str
    written: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class NotAcknowledged(Exception):
    """The agent did not end its prompt in time after a cancel."""


class Conversation:
    """Lives as long as the agent process. `timestamp` gives the time of day as the wire writes it."""

    def __init__(
        self, settings: AgentSettings, process: AgentProcess, events: EventQueue, timestamp: Callable[[], str]
    ) -> None:
        self._settings = settings
        self._process = process
        self._events = events
        self._timestamp = timestamp
        self._scope = Scope()
        self._acp = Acp(process, self, events.room)
        self._prompts = Prompts()
        self._runs: dict[Prompt, _Run] = {}
        self._permissions = Permissions()
        self._translators: OrderedDict[str, Translator] = OrderedDict()
        self._capabilities: dict[str, Any] | None = None
        self._auth_methods: list[dict[str, Any]] = []
        self._queueing = False
        self._loading = ""  # the session whose history is being replayed, until its first prompt
        self._replayed_plan: dict[str, Any] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self.session_id = ""

    @property
    def busy(self) -> bool:
        return self._prompts.busy

    @property
    def generation(self) -> int:
        return self._prompts.generation

    @property
    def capabilities(self) -> dict[str, Any] | None:
        """What the agent said of itself; None before `initialize`."""
        return self._capabilities

    def translator(self, session_id: str) -> Translator:
        translator = self._translators.get(session_id)
        if translator is None:
            translator = self._translators[session_id] = Translator()
            if len(self._translators) > _MOST_SESSIONS:
                self._translators.popitem(last=False)
        return translator

    # what the agent says by itself

    def update(self, session_id: str, update: dict[str, Any]) -> None:
        kind = update.get("sessionUpdate")
        if kind in ("foreground_idle", "background_complete"):
            self._background(session_id, str(kind), update)
            return
        events = self.translator(session_id).translated(session_id, update)
        if session_id == self._loading:
            if is_plan(update):
                self._replayed_plan = events[-1]
                return
            if is_history(update):
                return
        for one in events:
            self._events.put_event(one)
        if self._prompts.current is None and (self._idle is not None or starts_a_turn(update)):
            self._expect_silence(session_id)

    def _background(self, session_id: str, kind: str, update: dict[str, Any]) -> None:
        generation = self._prompts.current.generation if self._prompts.current else 0
        hand_over = kind == "foreground_idle" and update.get("promptHandoff") is True
        if hand_over:
            self._prompts.foreground_idle()
        self._events.put_event(
            event(
                kind,
                session_id=session_id,
                prompt_generation=generation,
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
        session_id = text(params.get("sessionId"))
        asked = mapping(params.get("toolCall"))
        translator = self.translator(session_id)
        if not translator.knows(text(asked.get("toolCallId"))):
            self._events.put_event(translator.announced(session_id, asked))
        permission = from_agent(
            rpc_id,
            params,
            translator.tool_known(asked),
            request_id=str(uuid.uuid4()),
            nanoseconds=time.time_ns(),
            created_at=self._timestamp(),
        )
        if self._settings.auto_approve:
            self._answer_soon(permission, permission.first_allowing() or None)
        elif not self._permissions.opened(permission):
            log.error("too many permissions are open, one is cancelled", tool_call_id=permission.tool_call_id)
            self._answer_soon(permission, None)
        else:
            self._events.put_event(self._permission_request(permission))

    def _permission_request(self, permission: Permission) -> dict[str, Any]:
        return event(
            "permission_request",
            session_id=self._settings.session_id or permission.acp_session,
            tool_call_id=permission.tool_call_id,
            request_id=permission.request_id,
            pending_id=permission.pending_id,
            permission_title=permission.title,
            permission_options=permission.options,
            action_type=permission.action_type,
            action_details=present(description=permission.description, raw_input=permission.details),
        )

    # permissions

    def open_permissions(self) -> list[dict[str, Any]]:
        return self._permissions.listed(self._settings.task_id, self._settings.session_id)

    def pending(self, pending_id: str) -> Permission:
        return self._permissions.with_pending(pending_id)

    async def answer(self, request_id: str, pending_id: str, option_id: str | None) -> Permission:
        """Give the agent its answer, None for cancelled; Refused. Once begun it is carried out."""
        permission = self._permissions.claim(request_id, pending_id, option_id)
        delivery = self._scope.spawn(self._deliver(permission, option_id), "permission's answer")
        if not await asyncio.shield(delivery):
            raise Refused(DELIVERY_FAILED)
        return permission

    async def _deliver(self, permission: Permission, option_id: str | None) -> bool:
        try:
            await self._acp.answer_permission(permission.rpc_id, option_id)
        except AgentGone:
            self._permission_cancelled(permission)
            return False
        if option_id is None:
            self._permission_cancelled(permission)
        else:
            self._permissions.answered(permission)
        return True

    def _permission_cancelled(self, permission: Permission) -> None:
        self._permissions.cancelled(permission)
        self._events.put_event(
            event(
                "permission_cancelled",
                session_id=self._settings.session_id or permission.acp_session,
                request_id=permission.request_id,
                pending_id=permission.pending_id,
            )
        )

    def _cancel_permissions(self) -> None:
        for permission in self._permissions.cancel_all():
            self._permission_cancelled(permission)
            self._answer_soon(permission, None)

    def _answer_soon(self, permission: Permission, option_id: str | None) -> None:
        self._scope.spawn(self._answered(permission, option_id), "permission's answer")

    async def _answered(self, permission: Permission, option_id: str | None) -> None:
        try:
            await self._acp.answer_permission(permission.rpc_id, option_id)
        except AgentGone:
            log.info("the agent is gone before it got an answer", tool_call_id=permission.tool_call_id)

    # sessions

    async def initialize(self, client_name: str, client_version: str) -> dict[str, Any]:
        answer = await self._acp.initialize(client_name or "tieline", client_version or "0")
        self._capabilities = mapping(answer.get("agentCapabilities"))
        self._queueing = prompt_queueing(self._capabilities)
        self._auth_methods = auth_methods(answer.get("authMethods"))
        prompting = mapping(self._capabilities.get("promptCapabilities"))
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
        servers, attempt = self._servers(asked_servers)
        try:
            answer = await self._acp.new_session(str(self._settings.workspace), servers)
        except AcpFailed as failure:
            self._no_session(failure)
        session_id = text(answer.get("sessionId"))
        self._loading = ""
        return self._begun(session_id, answer, "new", attempt)

    async def load_session(self, session_id: str, asked_servers: list[dict[str, Any]]) -> dict[str, Any]:
        if not mapping(self._capabilities).get("loadSession"):
            raise AcpFailed("the agent cannot load sessions")
        servers, attempt = self._servers(asked_servers)
        self._loading, self._replayed_plan = session_id, None
        try:
            answer = await self._acp.load_session(session_id, str(self._settings.workspace), servers)
        except BaseException as failure:
            self._loading = ""
            if isinstance(failure, AcpFailed):
                self._no_session(failure)
            raise
        return self._begun(session_id, answer, "resumed", attempt)

    def _no_session(self, failure: AcpFailed) -> NoReturn:
        if failure.auth_required:
            self._events.put_event(
                event("auth_required", auth_methods=self._auth_methods, error=str(failure))
            )
        raise failure

    def _servers(self, asked: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        capabilities = mapping(mapping(self._capabilities).get("mcpCapabilities"))
        return mcp_servers.given(asked, self._settings.mcp_servers, self._settings.port, capabilities)

    def _begun(
        self, session_id: str, answer: dict[str, Any], status: str, attempt: list[dict[str, Any]]
    ) -> dict[str, Any]:
        self.session_id = session_id
        translator = self.translator(session_id)
        attempt_id, now = str(uuid.uuid4()), self._timestamp()
        for attachment in attempt:
            told = {"attachment_attempt_id": attempt_id, "occurred_at": now, **attachment}
            self._events.put_event(event("mcp_attachment", mcp_attachment=told))
        for one in translator.set_up(session_id, answer):
            self._events.put_event(one)
        if self._replayed_plan is not None:
            self._events.put_event(self._replayed_plan)
            self._replayed_plan = None
        self._events.put_event(
            event(
                "session_status",
                session_id=session_id,
                session_status=status,
                data={"session_status": status, "init": True},
            )
        )
        return {"session_id": session_id} | present(model_state=translator.model_state())

    async def set_mode(self, mode_id: str) -> None:
        await self._acp.set_mode(self.session_id, mode_id)
        self._events.put_event(self.translator(self.session_id).mode_set(self.session_id, mode_id))

    async def set_model(self, model_id: str) -> None:
        option = self.translator(self.session_id).model_option()
        if option is None:
            raise AcpFailed("the agent offers no choice of models")
        await self.set_config_option(str(option["id"]), model_id)

    async def set_config_option(self, config_id: str, value: str) -> None:
        translator = self.translator(self.session_id)
        kind = next((option["type"] for option in translator.config_options if option["id"] == config_id), "")
        given: str | bool = value == "true" if kind == "boolean" else value
        answer = await self._acp.set_config_option(self.session_id, config_id, given)
        self._events.put_event(translator.options_set(self.session_id, config_id, answer))

    async def authenticate(self, method_id: str) -> None:
        await self._acp.authenticate(method_id)

    # prompts

    def prompt(self, prompt: Prompt) -> None:
        """Take a prompt; TooManyWaiting. Permissions that are open belong to the past."""
        start = self._prompts.submitted(prompt, self._queueing)
        self._cancel_permissions()
        if start:
            self._start(prompt)

    def _start(self, prompt: Prompt) -> None:
        self._forget_silence()
        self._runs[prompt] = _Run(self.session_id)
        self._scope.spawn(self._run(prompt, self._runs[prompt]), f"prompt {prompt.generation}")

    async def _run(self, prompt: Prompt, run: _Run) -> None:
        def written() -> None:
            run.written.set()
            self._loading = ""

        try:
            answer = await self._acp.prompt(run.session_id, prompt.content, written)
        except AgentGone:
            # Its exit ends the turn, when all of its output has been read. One that only closed its pipes is
            # of no use either.
            await self._process.stop(CLOSED_PIPES_GRACE)
            return
        except AcpFailed as failure:
            end = event("error", error=str(failure), prompt_generation=prompt.generation)
        else:
            end = event(
                "complete",
                session_id=run.session_id,
                prompt_generation=prompt.generation,
                data={"stop_reason": text(answer.get("stopReason"))},
                usage=usage(answer.get("usage")),
            )
        self._ended(prompt, end)

    def _ended(self, prompt: Prompt, end: dict[str, Any]) -> None:
        ending = self._prompts.ended(prompt)
        run = self._runs.pop(prompt)
        run.ended.set()
        run.written.set()
        if ending.told:
            self._cancel_permissions()
            self._cancel_tools(run.session_id)
            self._events.put_event(end)
        if ending.next is not None:
            self._start(ending.next)

    def _cancel_tools(self, session_id: str, leave_detached: bool = False) -> None:
        for one in self.translator(session_id).open_tools_cancelled(session_id, leave_detached):
            self._events.put_event(one)

    async def cancel(self) -> None:
        """Returns when the current prompt has ended, at once when there is none; NotAcknowledged."""
        prompt = self._prompts.current
        if prompt is None:
            return
        run = self._runs[prompt]
        self._cancel_tools(run.session_id, leave_detached=True)
        try:
            async with asyncio.timeout(CANCEL_PATIENCE):
                await run.written.wait()
                await self._acp.cancel(run.session_id)
                self._cancel_permissions()
                await run.ended.wait()
        except AgentGone:
            await run.ended.wait()
        except TimeoutError:
            if prompt is self._prompts.current:
                following = self._prompts.abandoned()
                if following is not None:
                    self._start(following)
            raise NotAcknowledged from None

    # the end

    def exited(self, error: str, data: dict[str, Any], tell_always: bool) -> None:
        """The process is gone and all of its output was read. Every prompt ends here, running or waiting."""
        self._forget_silence()
        sessions = {run.session_id for run in self._runs.values()} or {self.session_id}
        for permission in self._permissions.cancel_all():
            self._permission_cancelled(permission)
        for session_id in sorted(sessions):
            self._cancel_tools(session_id)
        prompts = self._prompts.all_ended()
        for prompt in prompts:
            self._events.put_event(
                event("error", error=error, prompt_generation=prompt.generation, data=data)
            )
        if tell_always and not prompts:
            self._events.put_event(event("error", error=error, data=data))
        for run in self._runs.values():
            run.ended.set()
            run.written.set()

    async def close(self) -> None:
        """Stop listening; nothing is told after this."""
        self._forget_silence()
        await self._acp.close()
        await self._scope.close()
