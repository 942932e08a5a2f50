"""The actions of the agent stream: payload in, payload out, failures as `RequestFailed`.

One function for each action; what they do to the agent is in conversation.py.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tieline_agentctl import envelope, prompt_content
from tieline_agentctl.acp import AcpFailed, AgentGone
from tieline_agentctl.agent_events import NotOffered
from tieline_agentctl.conversation import Conversation
from tieline_agentctl.envelope import Envelope, RequestFailed, flag, items, number, strings, text, texts
from tieline_agentctl.permissions import (
    DELIVERY_FAILED,
    NOT_FOUND,
    NOT_OFFERED,
    Refused,
)
from tieline_agentctl.prompts import Prompt, TooManyWaiting
from tieline_agentctl.turns import NotAcknowledged

INITIALIZE_LIMIT = 180.0
SESSION_LIMIT = 120.0
CANCEL_LIMIT = 30.0
_LAST_WORDS = 5  # lines of an agent that has ended: they say why, and nobody can ask for more

_CODES = {
    NOT_FOUND: envelope.NOT_FOUND,
    NOT_OFFERED: envelope.VALIDATION_ERROR,
    DELIVERY_FAILED: envelope.INTERNAL_ERROR,
}

Payload = dict[str, Any]
_T = TypeVar("_T")


class AgentRequests:
    """Carries out requests on the agent that runs at the moment.

    `conversation` gives it, None when none runs; `stderr` the last lines; `session_reset` is told of new sessions.
    """

    def __init__(
        self,
        conversation: Callable[[], Conversation | None],
        stderr: Callable[[], list[str]],
        session_reset: Callable[[], None],
        attachments_dir: str,
    ) -> None:
        self._conversation = conversation
        self._stderr = stderr
        self._session_reset = session_reset
        self._attachments_dir = attachments_dir
        self._actions: dict[str, Callable[[Conversation, Payload], Awaitable[Payload]]] = {
            "agent.initialize": self._initialize,
            "agent.session.new": self._session_new,
            "agent.session.load": self._session_load,
            "agent.session.reset": self._session_reset_request,
            "agent.session.set_mode": self._set_mode,
            "agent.session.set_model": self._set_model,
            "agent.session.set_config_option": self._set_config_option,
            "agent.session.authenticate": self._authenticate,
            "agent.prompt": self._prompt,
            "agent.cancel": self._cancel,
            "agent.permissions.respond": self._respond,
            "agent.permissions.list": self._list,
            "agent.permissions.resolve": self._resolve,
            "agent.permissions.cancel": self._cancel_permission,
        }

    async def carry_out(self, asked: Envelope) -> Payload:
        """The response's payload; RequestFailed and nothing else."""
        if asked.action == "agent.stderr":
            return {"lines": self._stderr()}
        action = self._actions.get(asked.action)
        if action is None:
            raise RequestFailed(envelope.UNKNOWN_ACTION, f"unknown action: {asked.action}")
        conversation = self._conversation()
        if conversation is None:
            raise self._gone("agent not running")
        payload = envelope.fields(asked.payload)
        try:
            return await action(conversation, payload)
        except AcpFailed as failure:
            raise _internal(str(failure)) from failure
        except NotOffered as failure:
            raise RequestFailed(envelope.BAD_REQUEST, str(failure)) from failure
        except AgentGone as failure:
            raise self._gone("agent not running: it has ended") from failure
        except Refused as failure:
            code = _CODES.get(failure.code, envelope.CONFLICT)
            raise RequestFailed(code, failure.code, {"permission_code": failure.code}) from failure

    def _gone(self, message: str) -> RequestFailed:
        last = " / ".join(self._stderr()[-_LAST_WORDS:])
        return _internal(f"{message}: {last}" if last else message)

    # sessions

    async def _initialize(self, conversation: Conversation, payload: Payload) -> Payload:
        name, version = text(payload, "client_name"), text(payload, "client_version")
        info = await _within(INITIALIZE_LIMIT, "initialize", conversation.initialize(name, version))
        return {"success": True, "agent_info": info}

    async def _session_new(self, conversation: Conversation, payload: Payload) -> Payload:
        servers = self._asked(conversation, payload)
        self._session_reset()
        return await _within(SESSION_LIMIT, "session new", _began(conversation.new_session(servers)))

    async def _session_reset_request(self, conversation: Conversation, payload: Payload) -> Payload:
        return await _began(conversation.new_session(self._asked(conversation, payload)))

    async def _session_load(self, conversation: Conversation, payload: Payload) -> Payload:
        session_id = text(payload, "session_id")
        if not session_id:
            raise RequestFailed(envelope.BAD_REQUEST, "session_id is required")
        servers = self._asked(conversation, payload)
        self._session_reset()
        loading = _began(conversation.load_session(session_id, servers))
        return await _within(SESSION_LIMIT, "session load", loading)

    def _asked(self, conversation: Conversation, payload: Payload) -> list[dict[str, Any]]:
        text(payload, "cwd")
        servers = items(payload, "mcp_servers")
        for server in servers:
            for name in ("name", "command", "url", "type"):
                text(server, name)
            texts(server, "args")
            strings(server, "env")
            strings(server, "headers")
        if conversation.capabilities is None:
            raise _internal("agent not initialized - call initialize first")
        return servers

    async def _set_mode(self, conversation: Conversation, payload: Payload) -> Payload:
        await conversation.set_mode(_in_session(conversation, payload, "mode_id")[0])
        return {"success": True}

    async def _set_model(self, conversation: Conversation, payload: Payload) -> Payload:
        await conversation.set_model(_in_session(conversation, payload, "model_id")[0])
        return {"success": True}

    async def _set_config_option(self, conversation: Conversation, payload: Payload) -> Payload:
        config_id, value = _in_session(conversation, payload, "config_id", "value")
        await conversation.set_config_option(config_id, value)
        return {"success": True}

    async def _authenticate(self, conversation: Conversation, payload: Payload) -> Payload:
        await conversation.authenticate(_required(payload, "method_id")[0])
        return {"success": True}

    # prompts

    async def _prompt(self, conversation: Conversation, payload: Payload) -> Payload:
        content = prompt_content.content(payload, conversation.capabilities or {}, self._attachments_dir)
        if not conversation.session_id:
            raise RequestFailed(envelope.BAD_REQUEST, "no active session - call new_session first")
        try:
            conversation.prompt(Prompt(number(payload, "prompt_generation"), content, flag(payload, "steer")))
        except TooManyWaiting as failure:
            raise _internal(str(failure)) from failure
        return {"success": True}

    async def _cancel(self, conversation: Conversation, payload: Payload) -> Payload:
        try:
            await _within(CANCEL_LIMIT, "cancel", conversation.turns.cancel())
        except NotAcknowledged:
            error = "the cancel was not acknowledged by the agent"
            return {"success": False, "error": error, "not_acknowledged": True}
        except (AcpFailed, AgentGone, RequestFailed) as failure:
            return {"success": False, "error": str(failure)}
        return {"success": True}

    # permissions

    async def _respond(self, conversation: Conversation, payload: Payload) -> Payload:
        pending_id, option_id = text(payload, "pending_id"), text(payload, "option_id")
        cancelled = flag(payload, "cancelled")
        try:
            permission = conversation.desk.with_pending(pending_id)
            await conversation.desk.answer(
                permission.request_id, pending_id, None if cancelled else option_id
            )
        except Refused as failure:
            told = (
                f"option {option_id!r} was not offered"
                if failure.code == NOT_OFFERED
                else f"no such pending permission: {failure.code}"
            )
            raise RequestFailed(envelope.NOT_FOUND, told) from failure
        return {"success": True}

    async def _list(self, conversation: Conversation, payload: Payload) -> Payload:
        permissions = conversation.desk.listed()
        return {"permissions": permissions, "total": len(permissions)}

    async def _resolve(self, conversation: Conversation, payload: Payload) -> Payload:
        names = ("request_id", "pending_id", "option_id")
        request_id, pending_id, option_id = (text(payload, name) for name in names)
        if not (request_id and pending_id and option_id):
            raise RequestFailed(envelope.BAD_REQUEST, "request_id, pending_id, and option_id are required")
        permission = await conversation.desk.answer(request_id, pending_id, option_id)
        return {
            "request_id": request_id,
            "pending_id": pending_id,
            "option_id": option_id,
            "option_kind": permission.kind_of(option_id),
            "status": "resolved",
        }

    async def _cancel_permission(self, conversation: Conversation, payload: Payload) -> Payload:
        request_id, pending_id = text(payload, "request_id"), text(payload, "pending_id")
        if not (request_id and pending_id):
            raise RequestFailed(envelope.BAD_REQUEST, "request_id and pending_id are required")
        await conversation.desk.answer(request_id, pending_id, None)
        return {"request_id": request_id, "pending_id": pending_id, "status": "cancelled"}


async def _began(beginning: Awaitable[dict[str, Any]]) -> Payload:
    return {"success": True, **await beginning}


async def _within(limit: float, name: str, work: Awaitable[_T]) -> _T:
    try:
        async with asyncio.timeout(limit):
            return await work
    except TimeoutError:
        raise _internal(f"{name} took longer than {limit:g} s") from None


def _in_session(conversation: Conversation, payload: Payload, *names: str) -> list[str]:
    found = _required(payload, *names)
    if not conversation.session_id:
        raise RequestFailed(envelope.BAD_REQUEST, "no active session - call new_session first")
    return found


def _required(payload: Payload, *names: str) -> list[str]:
    found = [text(payload, name) for name in names]
    for name, value in zip(names, found, strict=True):
        if not value:
            raise RequestFailed(envelope.BAD_REQUEST, f"{name} is required")
    return found


def _internal(message: str) -> RequestFailed:
    return RequestFailed(envelope.INTERNAL_ERROR, message)
