"""What the owner of a session does when it is asked: one method for each kind of command.

Rule 1: a command is checked before it acts; a repeated id gets the first answer and acts once.
Rule 2: commands run concurrently, under a bound, save shell input and resize: those are done while they are received,
        so they keep the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import structlog
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError
from tieline_protocol import agentctl, subjects
from tieline_protocol.bus import Received
from tieline_protocol.cursor import Cursor
from tieline_protocol.errors import (
    Code,
    FateUnknown,
    ProtocolError,
    Refused,
    TielineError,
    TimedOut,
    Unavailable,
)
from tieline_protocol.jsontext import dumps
from tieline_protocol.messages import Request, answer, explain, refusal

from tieline_streams import views
from tieline_streams.answers import Answers
from tieline_streams.session import CLIENT, Session
from tieline_streams.sockets import Fatal
from tieline_streams.stream_manager import StreamManager

log = structlog.get_logger()

Body = dict[str, Any] | bytes
_TITLE = 1_000
_SIZE = 10_000  # columns or rows: more is no terminal
_PASSED = {
    "agent.initialize": 180.0,
    "agent.session.new": 120.0,
    "agent.session.load": 120.0,
    "agent.session.reset": 120.0,
    "agent.session.set_mode": 30.0,
    "agent.session.set_model": 30.0,
    "agent.session.set_config_option": 30.0,
    "agent.session.authenticate": 120.0,
    "agent.stderr": 30.0,
}
_OPENS_ACP = ("agent.session.new", "agent.session.load", "agent.session.reset")
_ORDERED = ("shell.input", "shell.resize")
_ANY_STATE = ("session.get", "session.close", "session.rename")
# What changes nothing may simply be done again, so that large answers need not be kept.
_REPEATABLE = frozenset({"session.get", "agent.stderr", "agent.permissions.list", "shell.buffer"})


class _Payload(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Prompt(_Payload):
    text: StrictStr
    attachments: list[dict[str, Any]] | None = None
    client_message_id: StrictStr | None = Field(None, min_length=1, max_length=256)
    queue: StrictBool = False


class _Respond(_Payload):
    pending_id: StrictStr = Field(min_length=1)
    request_id: StrictStr | None = None
    option_id: StrictStr | None = None
    cancelled: StrictBool = False


class _Input(_Payload):
    data: StrictStr


class _Resize(_Payload):
    cols: StrictInt = Field(ge=1, le=_SIZE)
    rows: StrictInt = Field(ge=1, le=_SIZE)


class _Rename(_Payload):
    title: StrictStr = Field(max_length=_TITLE)


_P = TypeVar("_P", bound=BaseModel)


def read(model: type[_P], payload: dict[str, Any]) -> _P:
    """A payload, checked. Raises ProtocolError."""
    try:
        return model.model_validate(payload)
    except ValidationError as exc:
        raise ProtocolError(explain(exc)) from exc


class Commands:
    """Answers the commands of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._limits = session.parts.config.limits
        self._answers = Answers()
        self._under_way: dict[str, asyncio.Future[bytes]] = {}
        self._running = 0

    async def handle(self, received: Received) -> bytes | None:
        """One request; None: stay silent."""
        session = self._session
        action = subjects.command_action(received.subject)
        if action == subjects.HEAD:
            heads = {"agent": session.agent_log.head(), "workspace": session.workspace_log.head()}
            return answer({name: head.model_dump() for name, head in heads.items()})
        if session.finished.is_set():
            return None
        try:
            request = Request.decode(received.data)
            if request.user != session.record.user:
                raise Refused(Code.NOT_FOUND, "there is no such session")
            return await self._once(action, request)
        except TielineError as exc:
            return refusal(exc)

    async def _once(self, action: str, request: Request) -> bytes:
        loop = asyncio.get_running_loop()
        first = self._answers.get(request.id, loop.time())
        if first is not None:
            return first
        if (under_way := self._under_way.get(request.id)) is not None:
            return await asyncio.shield(under_way)
        if action in _ORDERED:
            reply = self._typed(action, request)
            self._answers.put(request.id, reply, loop.time())
            return reply
        if self._running >= self._limits.in_flight:
            raise Refused(Code.BUSY, "too many commands at once, try again")
        future: asyncio.Future[bytes] = loop.create_future()
        self._under_way[request.id] = future
        self._running += 1
        try:
            reply = await self._answered(action, request)
            future.set_result(reply)
        finally:
            self._running -= 1
            del self._under_way[request.id]
            if not future.done():
                future.cancel()
        if action not in _REPEATABLE and not (agentctl.is_call(action) and agentctl.is_safe(action)):
            self._answers.put(request.id, reply, loop.time())
        return reply

    async def _answered(self, action: str, request: Request) -> bytes:
        budget = max(request.budget_ms, 0) / 1000
        try:
            async with asyncio.timeout(budget + 0.5):
                return answer(self._fits(await self._do(action, request.payload, budget)))
        except TimeoutError:
            return refusal(TimedOut(f"{action} took longer than {request.budget_ms} ms"))
        except Fatal as exc:
            self._session.end("failed", exc.message)
            return refusal(exc)
        except TielineError as exc:
            return refusal(exc)
        except Exception as exc:  # whoever asked gets an answer, whatever is broken here
            log.exception("a command could not be handled", action=action, session=self._session.id)
            return refusal(TielineError(f"{action}: {type(exc).__name__}"))

    def _fits(self, body: Body) -> bytes:
        raw = body if isinstance(body, bytes) else dumps(body)
        if len(raw) > self._limits.answer_bytes:
            raise Refused(Code.TOO_LARGE, f"the answer has {len(raw):,} bytes")
        return raw

    async def _do(self, action: str, payload: dict[str, Any], budget: float) -> Body:
        session = self._session
        if payload.get("session_id", session.id) != session.id:
            raise ProtocolError("session_id: not the session that was asked")
        if action not in _ANY_STATE and session.state != "ready":
            raise Refused(Code.CONFLICT, f"the session is {session.state}")
        rest = {name: value for name, value in payload.items() if name != "session_id"}
        handler = self._table().get(action)
        if handler is not None:
            return await handler(rest, budget)
        if action in _PASSED:
            return await self._passed(action, rest, min(budget, _PASSED[action]))
        if action.partition(".")[0] in _HTTP and agentctl.is_call(action):
            return await self._called(action, rest, budget)
        raise Refused(Code.UNKNOWN_ACTION, f"unknown action: {action}")

    def _table(self) -> dict[str, Callable[[dict[str, Any], float], Awaitable[Body]]]:
        return {
            "session.get": self._get,
            "session.close": self._close,
            "session.rename": self._rename,
            "agent.prompt": self._prompt,
            "agent.cancel": self._cancel,
            "agent.permissions.list": self._permissions,
            "agent.permissions.respond": self._respond,
            "question.answer": self._question,
            "shell.buffer": self._buffer,
        }

    # The session

    async def _get(self, payload: dict[str, Any], budget: float) -> Body:
        session = self._session
        connections = session.manager.states() if session.manager is not None else {}
        return views.detailed(session.record, connections, session.turns.latest)

    async def _close(self, payload: dict[str, Any], budget: float) -> Body:
        self._session.end("closed")
        await self._session.finished.wait()
        return {}

    async def _rename(self, payload: dict[str, Any], budget: float) -> Body:
        await self._session.write(title=read(_Rename, payload).title)
        return {}

    # The agent

    async def _prompt(self, payload: dict[str, Any], budget: float) -> Body:
        prompt = read(_Prompt, payload)
        session, loop = self._session, asyncio.get_running_loop()
        turns, manager = session.turns, session.manager
        if (generation := turns.generation_of(prompt.client_message_id)) is not None:
            return {"generation": generation}
        if manager is None or not manager.agent_open():
            raise Unavailable("the agent is not connected")
        deadline = loop.time() + budget
        generation, (accepted,) = turns.accept(prompt.client_message_id, prompt.queue, loop.time())
        try:
            async with asyncio.timeout_at(deadline - min(0.2, budget / 10)):
                # Before the frame is written, so that whoever finds a prompt at work finds its turn in the log.
                await session.agent_log.store(accepted)
        except BaseException as exc:
            session.tell(turns.withdraw(generation, loop.time()))
            if isinstance(exc, TimeoutError):
                raise Unavailable("the prompt could not be stored in time; it was not sent") from exc
            raise
        body: dict[str, Any] = {"text": prompt.text, "prompt_generation": generation}
        if prompt.attachments:
            body["attachments"] = prompt.attachments
        wait = max(min(deadline - loop.time(), self._limits.agent_request), 0.05)
        try:
            reply = await manager.send_stream_request("agent.prompt", body, wait)
            if reply.get("success") is False:
                raise Refused(Code.INTERNAL, str(reply.get("error") or "the daemon refused the prompt"))
        except (FateUnknown, TimedOut):
            session.tell(turns.unsure(generation, loop.time()))
            session.wake()
        except Refused:
            session.tell(turns.refused(generation, loop.time()))
            raise
        except Unavailable:
            session.tell(turns.withdraw(generation, loop.time()))
            raise
        except BaseException:
            turns.unsure(generation, loop.time())
            session.wake()
            raise
        else:
            session.tell(turns.delivered(generation, loop.time()))
        return {"generation": generation}

    async def _cancel(self, payload: dict[str, Any], budget: float) -> Body:
        session = self._session
        turn = session.turns.front
        session.tell(session.turns.cancel(asyncio.get_running_loop().time()))
        # A daemon that does not answer does not matter to the turn: it ends 10 s from now in any case.
        await self._manager().send_stream_request(
            "agent.cancel", None, min(budget, self._limits.agent_request)
        )
        return {"state": turn.state if turn is not None else "ended"}

    async def _permissions(self, payload: dict[str, Any], budget: float) -> Body:
        try:
            listed = await self._manager().send_stream_request("agent.permissions.list", None, budget)
        except Refused as exc:
            if exc.code is not Code.UNKNOWN_ACTION:
                raise
            return {"permissions": self._session.permissions.items()}
        return {"permissions": listed.get("permissions") or []}

    async def _respond(self, payload: dict[str, Any], budget: float) -> Body:
        wanted = read(_Respond, payload)
        if not wanted.cancelled and not wanted.option_id:
            raise ProtocolError("option_id: required, or cancelled: true")
        try:
            status = await self._decide(wanted, budget)
        except Refused as exc:
            details = (exc.details or {}).get("agentctl") or {}
            if _is_settled(details) and self._session.permissions.remove(wanted.pending_id):
                self._session.permissions_changed()
            raise
        if self._session.permissions.remove(wanted.pending_id):
            self._session.permissions_changed()
        return {"status": status}

    async def _decide(self, wanted: _Respond, budget: float) -> str:
        manager = self._manager()
        if wanted.request_id:
            body: dict[str, Any] = {"request_id": wanted.request_id, "pending_id": wanted.pending_id}
            action = "agent.permissions.cancel"
            if not wanted.cancelled:
                action, body = "agent.permissions.resolve", {**body, "option_id": wanted.option_id}
            try:
                done = await manager.send_stream_request(action, body, budget)
                return str(done.get("status") or ("cancelled" if wanted.cancelled else "resolved"))
            except Refused as exc:
                if exc.code is not Code.UNKNOWN_ACTION:
                    raise
        body = {"pending_id": wanted.pending_id}
        body.update({"cancelled": True} if wanted.cancelled else {"option_id": wanted.option_id})
        done = await manager.send_stream_request("agent.permissions.respond", body, budget)
        if done.get("success") is False:
            raise Refused(Code.INTERNAL, str(done.get("error") or "the daemon refused the decision"))
        return "cancelled" if wanted.cancelled else "resolved"

    async def _question(self, payload: dict[str, Any], budget: float) -> Body:
        raise Refused(Code.NOT_FOUND, "there is no such question")

    async def _passed(self, action: str, payload: dict[str, Any], timeout: float) -> Body:
        session = self._session
        body = dict(payload)
        # `session_id` is ours in a client's payload and the agent's own on the daemon's wire.
        acp = body.pop("acp_session_id", None)
        if action == "agent.initialize":
            body = {**CLIENT, **body}
        elif action in ("agent.session.new", "agent.session.reset"):
            body = {"cwd": str(session.place.path) if session.place else "", "mcp_servers": [], **body}
        elif action == "agent.session.load":
            body["session_id"] = acp or session.record.acp_session or ""
        reply = await self._manager().send_stream_request(action, body or None, timeout)
        opened = reply.get("session_id")
        if action in _OPENS_ACP and reply.get("success") and isinstance(opened, str):
            await session.write(acp_session=opened)
        return reply

    def _manager(self) -> StreamManager:
        manager = self._session.manager
        if manager is None:
            raise Unavailable("the session is not connected")
        return manager

    # The workspace

    def _typed(self, action: str, request: Request) -> bytes:
        """Shell input and resize: no waiting in here, or the order would be lost."""
        session = self._session
        try:
            if session.state != "ready":
                raise Refused(Code.CONFLICT, f"the session is {session.state}")
            if request.payload.get("session_id", session.id) != session.id:
                raise ProtocolError("session_id: not the session that was asked")
            if action == "shell.input":
                self._manager().write_shell_input(read(_Input, request.payload).data)
            else:
                size = read(_Resize, request.payload)
                self._manager().resize_shell(size.cols, size.rows)
        except TielineError as exc:
            return refusal(exc)
        return answer({})

    async def _buffer(self, payload: dict[str, Any], budget: float) -> Body:
        events = self._session.workspace_log
        data, head = self._session.tail.text(), events.head()
        async with asyncio.timeout(budget):
            await events.confirmed(head.last)  # so that the cursor is of a place that the log has
        return {"data": data, "cursor": str(Cursor(head.epoch, head.last, head.at))}

    async def _called(self, action: str, payload: dict[str, Any], budget: float) -> Body:
        session = self._session
        instance = session.instance
        if instance is None:
            raise Unavailable("the session is not connected")
        if action == "process.start":
            place = session.place.path if session.place else Path()
            folder = str(place / str(payload.get("working_dir") or ""))
            payload = {"kind": "custom", **payload, "working_dir": folder, "session_id": session.id}
        elif action == "process.list":
            payload = {"session_id": session.id}
        if action in agentctl.LONG:
            limit = self._limits.operation
            within = min(self._limits.operation_answer, max(budget - 0.2, 0.1))
            return await session.operations.run(action, lambda: instance.call(action, payload, limit), within)
        return await instance.call(action, payload, min(budget, self._limits.http))


_HTTP = frozenset({"workspace", "git", "process", "vscode", "shell"})


def _is_settled(details: object) -> bool:
    """Whether the daemon says that the decision is not waited for any more."""
    if not isinstance(details, dict):
        return False
    inner = details.get("details")
    code = inner.get("permission_code") if isinstance(inner, dict) else None
    return code in ("permission_not_found", "permission_stale", "permission_already_resolved")
