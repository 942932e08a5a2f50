"""What the owner of a session does when it is asked: checks, answers once, and hands on to whoever can do it.

Rule 1: a command is checked before it acts; a repeated id gets the first answer and acts once.
Rule 2: commands run concurrently, under a bound, save shell input and resize: those are done while they are received,
        so they keep the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog
from tieline_protocol import agentctl_http, logs, subjects, tracing
from tieline_protocol.answers import Answers
from tieline_protocol.bus import Received
from tieline_protocol.errors import Code, ProtocolError, Refused, TielineError, TimedOut
from tieline_protocol.jsontext import dumps
from tieline_protocol.messages import Request, answer, refusal

from tieline_streams import views
from tieline_streams.agent_commands import PASSED, AgentCommands
from tieline_streams.dialling import Fatal
from tieline_streams.metrics import COMMANDS, SECONDS
from tieline_streams.payloads import Found, Rename, read
from tieline_streams.session import Session
from tieline_streams.workspace_commands import WorkspaceCommands

log = structlog.get_logger()

Body = dict[str, Any] | bytes
Unowned = Callable[[Request], Awaitable[dict[str, Any]]]

_ORDERED = ("shell.input", "shell.resize")
_ANY_STATE = ("session.get", "session.close", "session.rename", subjects.FOUND)
ENDED = ("closed", "failed")
_HTTP = frozenset({"workspace", "git", "process", "vscode", "shell"})
# What changes nothing may simply be done again, so that large answers need not be kept.
_REPEATABLE = frozenset({"session.get", "agent.stderr", "agent.permissions.list", "shell.buffer"})


class Commands:
    """Answers the commands of one session. `unowned` answers for it once it has ended, from its record."""

    def __init__(self, session: Session, unowned: Mapping[str, Unowned]) -> None:
        self._session = session
        self._unowned = unowned
        self._limits = session.limits
        self._agent = AgentCommands(session)
        self._workspace = WorkspaceCommands(session)
        self._answers = Answers()
        self._under_way: dict[str, asyncio.Future[bytes]] = {}
        self._loop = asyncio.get_running_loop()
        self._table: dict[str, Callable[[dict[str, Any], float], Awaitable[Body]]] = {
            "session.get": self._get,
            "session.close": self._close,
            "session.rename": self._rename,
            subjects.FOUND: self._found,
            "agent.prompt": self._agent.prompt,
            "agent.cancel": self._agent.cancel,
            "agent.permissions.list": self._agent.permissions,
            "agent.permissions.respond": self._agent.respond,
            "question.answer": self._agent.question,
            "shell.buffer": self._workspace.buffer,
        }

    async def handle(self, received: Received) -> bytes | None:
        """One request; None: stay silent."""
        session = self._session
        action = subjects.command_action(received.subject)
        if not session.may_act():
            return None
        if session.finished.is_set():
            return await self._afterwards(action, received)
        if action == subjects.HEAD:
            return answer({name: head.model_dump() for name, head in session.journal.heads().items()})
        try:
            request = Request.decode(received.data)
            if request.user != session.user:
                raise Refused(Code.NOT_FOUND, "there is no such session")
            return await self._once(action, request)
        except TielineError as exc:
            return refusal(exc)

    async def _afterwards(self, action: str, received: Received) -> bytes | None:
        """The session has ended while this was on its way. Whoever may own it next answers otherwise."""
        session = self._session
        if session.state not in ENDED or action == subjects.HEAD:
            return None
        try:
            request = Request.decode(received.data)
            if request.user != session.user:
                raise Refused(Code.NOT_FOUND, "there is no such session")
            if (unowned := self._unowned.get(action)) is None:
                raise Refused(Code.CONFLICT, f"the session is {session.state}")
            return answer(await unowned(request))
        except TielineError as exc:
            return refusal(exc)

    async def _once(self, action: str, request: Request) -> bytes:
        first = self._answers.get(request.id, self._loop.time())
        if first is not None:
            return first
        if (under_way := self._under_way.get(request.id)) is not None:
            return await asyncio.shield(under_way)
        if action in _ORDERED:
            reply = self._typed(action, request)
            self._answers.put(request.id, reply, self._loop.time())
            return reply
        if len(self._under_way) >= self._limits.in_flight:
            raise Refused(Code.BUSY, "too many commands at once, try again")
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._under_way[request.id] = future
        try:
            reply = await self._answered(action, request)
            future.set_result(reply)
        finally:
            del self._under_way[request.id]
            if not future.done():
                future.cancel()
        if action not in _REPEATABLE and not (
            agentctl_http.is_call(action) and agentctl_http.is_safe(action)
        ):
            self._answers.put(request.id, reply, self._loop.time())
        return reply

    async def _answered(self, action: str, request: Request) -> bytes:
        label = action if self._known(action) else "unknown"
        attributes = {"rpc.system": "nats", "rpc.method": label, "tieline.session.id": self._session.id}
        began = self._loop.time()
        logs.about(user=request.user, session=self._session.id)
        try:
            with tracing.begin(label, "server", attributes, parent=request.traceparent):
                reply, outcome = await self._replied(action, request), "ok"
        except TielineError as exc:
            reply, outcome = refusal(exc), exc.code
        COMMANDS.labels(action=label, outcome=outcome).inc()
        SECONDS.labels(action=label).observe(self._loop.time() - began)
        return reply

    async def _replied(self, action: str, request: Request) -> bytes:
        budget = max(request.budget_ms, 0) / 1000
        try:
            async with asyncio.timeout(budget + 0.5):
                return answer(self._fits(await self._do(action, request.payload, budget)))
        except TimeoutError as exc:
            raise TimedOut(f"{action} took longer than {request.budget_ms} ms") from exc
        except Fatal as exc:
            self._session.end("failed", exc.message)
            raise
        except TielineError:
            raise
        except Exception as exc:  # whoever asked gets an answer, whatever is broken here
            log.exception("a command could not be handled", action=action)
            raise TielineError(f"{action}: {type(exc).__name__}") from exc

    def _known(self, action: str) -> bool:
        return action in self._table or action in PASSED or agentctl_http.is_call(action)

    def _fits(self, body: Body) -> bytes:
        raw = body if isinstance(body, bytes) else dumps(body)
        if len(raw) > self._limits.answer_bytes:
            raise Refused(Code.TOO_LARGE, f"the answer has {len(raw):,} bytes")
        return raw

    def _typed(self, action: str, request: Request) -> bytes:
        try:
            self._check(action, request.payload)
            self._workspace.typed(action, request.payload)
        except TielineError as exc:
            return refusal(exc)
        return answer({})

    def _check(self, action: str, payload: dict[str, Any]) -> None:
        session = self._session
        if payload.get("session_id", session.id) != session.id:
            raise ProtocolError("session_id: not the session that was asked")
        if action not in _ANY_STATE and session.state != "ready":
            raise Refused(Code.CONFLICT, f"the session is {session.state}")

    async def _do(self, action: str, payload: dict[str, Any], budget: float) -> Body:
        self._check(action, payload)
        rest = {name: value for name, value in payload.items() if name != "session_id"}
        if (handler := self._table.get(action)) is not None:
            return await handler(rest, budget)
        if action in PASSED:
            return await self._agent.passed(action, rest, budget)
        if action.partition(".")[0] in _HTTP and agentctl_http.is_call(action):
            return await self._workspace.called(action, rest, budget)
        raise Refused(Code.UNKNOWN_ACTION, f"unknown action: {action}")

    async def _get(self, payload: dict[str, Any], budget: float) -> Body:
        session = self._session
        connections = session.manager.states() if session.manager is not None else {}
        return views.detailed(session.record, connections, session.journal.turns.latest)

    async def _close(self, payload: dict[str, Any], budget: float) -> Body:
        self._session.end("closed")
        await self._session.gone.wait()
        return {}

    async def _rename(self, payload: dict[str, Any], budget: float) -> Body:
        await self._session.ledger.write(title=read(Rename, payload).title)
        return {}

    async def _found(self, payload: dict[str, Any], budget: float) -> Body:
        """From the process that owned the session before, and was not certain of it any more."""
        found, journal = read(Found, payload), self._session.journal
        gap = {"type": "gap", "reason": "owner_lost"}
        logs = ((journal.agent, found.agent), (journal.workspace, found.workspace))
        await asyncio.gather(*(log.store({**gap, "events": events}) for log, events in logs if events))
        return {}
