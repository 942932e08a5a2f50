"""What a user asks of the agent: prompts, cancel, decisions, and requests that are passed on as they are."""

from __future__ import annotations

import asyncio
from typing import Any

from tieline_protocol import tracing
from tieline_protocol.errors import Code, FateUnknown, ProtocolError, Refused, TimedOut, Unavailable

from tieline_streams.failing import NOT_RUNNING
from tieline_streams.line import CLIENT
from tieline_streams.payloads import Answer, Prompt, Respond, read
from tieline_streams.session import Session
from tieline_streams.stream_manager import StreamManager

Body = dict[str, Any]

PASSED = {
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
_SETTLED = ("permission_not_found", "permission_stale", "permission_already_resolved")


class AgentCommands:
    """Of one session. `budget` is how many seconds whoever asked will wait."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._journal = session.journal
        self._limits = session.limits
        self._loop = asyncio.get_running_loop()

    def _manager(self) -> StreamManager:
        manager = self._session.manager
        if manager is None:
            raise Unavailable("the session is not connected")
        return manager

    async def _alive(self, deadline: float, *, blank: bool = False) -> None:
        """Start an agent that has ended; `blank`: without its conversation. Raises TielineError."""
        recovery, place = self._session.recovery, self._session.place
        await recovery.wait((deadline - self._loop.time()) * 0.9)
        if recovery.gone and place is not None:
            within = (deadline - self._loop.time()) * 0.9
            await (recovery.restart if blank else recovery.revive)(place, within)

    async def prompt(self, payload: dict[str, Any], budget: float) -> Body:
        """Accepted, stored, written: in this order. What was written once is never written again."""
        prompt = read(Prompt, payload)
        known = self._journal.turns.generation_of(prompt.client_message_id)
        if known is not None:
            return {"generation": known}
        deadline = self._loop.time() + budget
        await self._alive(deadline)
        try:
            return await self._prompt(prompt, deadline, budget)
        except Refused as exc:
            if NOT_RUNNING not in exc.message:
                raise
            # Its end was nobody's event. The daemon has said no, so the prompt has not run.
            await self._session.recovery.lost(None)
            await self._alive(deadline)
            return await self._prompt(prompt, deadline, budget)

    async def _prompt(self, prompt: Prompt, deadline: float, budget: float) -> Body:
        turns, manager = self._journal.turns, self._manager()
        if not manager.agent_open():
            raise Unavailable("the agent is not connected")
        generation, (accepted,) = turns.accept(prompt.client_message_id, prompt.queue, self._loop.time())
        try:
            async with asyncio.timeout_at(deadline - min(0.2, budget / 10)):
                # So that whoever finds a prompt at work finds its turn in the log.
                await self._journal.agent.store(accepted)
        except BaseException as exc:
            self._journal.tell(turns.withdraw(generation, self._loop.time()))
            if isinstance(exc, TimeoutError):
                raise Unavailable("the prompt could not be stored in time; it was not sent") from exc
            raise
        self._session.tools.asked_by = tracing.current()
        body: dict[str, Any] = {"text": prompt.text, "prompt_generation": generation}
        if prompt.attachments:
            body["attachments"] = prompt.attachments
        wait = max(min(deadline - self._loop.time(), self._limits.agent_request), 0.05)
        await self._send(manager, generation, body, wait)
        return {"generation": generation}

    async def _send(self, manager: StreamManager, generation: int, body: Body, wait: float) -> None:
        turns, now = self._journal.turns, self._loop.time
        try:
            reply = await manager.send_stream_request("agent.prompt", body, wait)
            if reply.get("success") is False:
                raise Refused(Code.INTERNAL, str(reply.get("error") or "the daemon refused the prompt"))
        except (FateUnknown, TimedOut):
            self._journal.tell(turns.unsure(generation, now()))
            self._journal.wake()
        except (Refused, Unavailable):
            self._journal.tell(turns.withdraw(generation, now()))
            raise
        except BaseException:
            turns.unsure(generation, now())
            self._journal.wake()
            raise
        else:
            self._journal.tell(turns.delivered(generation, now()))

    async def cancel(self, payload: dict[str, Any], budget: float) -> Body:
        turns = self._journal.turns
        turn = turns.front
        if turn is None and self._session.recovery.gone:
            return {"state": "ended"}
        self._journal.tell(turns.cancel(self._loop.time()))
        # A daemon that does not answer does not matter to the turn: it ends 10 s from now in any case.
        wait = min(budget, self._limits.agent_request)
        await self._manager().send_stream_request("agent.cancel", None, wait)
        return {"state": turn.state if turn is not None else "ended"}

    async def permissions(self, payload: dict[str, Any], budget: float) -> Body:
        try:
            listed = await self._manager().send_stream_request("agent.permissions.list", None, budget)
        except Refused as exc:
            if exc.code is not Code.UNKNOWN_ACTION:
                raise
            return {"permissions": self._journal.permissions.items()}
        return {"permissions": listed.get("permissions") or []}

    async def respond(self, payload: dict[str, Any], budget: float) -> Body:
        wanted = read(Respond, payload)
        if not wanted.cancelled and not wanted.option_id:
            raise ProtocolError("option_id: required, or cancelled: true")
        try:
            status = await self._decide(wanted, budget)
        except Refused as exc:
            if _is_settled(exc):
                self._decided(wanted.pending_id)
            raise
        self._decided(wanted.pending_id)
        return {"status": status}

    def _decided(self, pending_id: str) -> None:
        if self._journal.permissions.remove(pending_id):
            self._journal.permissions_changed()

    async def _decide(self, wanted: Respond, budget: float) -> str:
        manager = self._manager()
        done = "cancelled" if wanted.cancelled else "resolved"
        if wanted.request_id:
            body: Body = {"request_id": wanted.request_id, "pending_id": wanted.pending_id}
            action = "agent.permissions.cancel"
            if not wanted.cancelled:
                action, body = "agent.permissions.resolve", {**body, "option_id": wanted.option_id}
            try:
                return str((await manager.send_stream_request(action, body, budget)).get("status") or done)
            except Refused as exc:
                if exc.code is not Code.UNKNOWN_ACTION:
                    raise
        body = {"pending_id": wanted.pending_id}
        body.update({"cancelled": True} if wanted.cancelled else {"option_id": wanted.option_id})
        reply = await manager.send_stream_request("agent.permissions.respond", body, budget)
        if reply.get("success") is False:
            raise Refused(Code.INTERNAL, str(reply.get("error") or "the daemon refused the decision"))
        return done

    async def question(self, payload: dict[str, Any], budget: float) -> Body:
        """The reply goes to the daemon over whatever socket is up, now or later."""
        wanted = read(Answer, payload)
        self._journal.answer_question(
            wanted.question_id, wanted.answers, wanted.rejected, wanted.reject_reason
        )
        return {}

    async def passed(self, action: str, payload: dict[str, Any], budget: float) -> Body:
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
        if action != "agent.stderr":
            await self._alive(self._loop.time() + budget, blank=action in (*_OPENS_ACP, "agent.initialize"))
        manager = self._manager()
        if action in _OPENS_ACP and manager.agent_open():
            session.tools.stop("the agent's session was replaced")  # the daemon fails them too
        reply = await manager.send_stream_request(action, body or None, min(budget, PASSED[action]))
        opened = reply.get("session_id")
        if action in _OPENS_ACP and reply.get("success") and isinstance(opened, str):
            await session.ledger.write(acp_session=opened)
            await session.line.remember_agent()
        return reply


def _is_settled(exc: Refused) -> bool:
    """Whether the daemon says that the decision is not waited for any more, by a code or in words."""
    envelope = (exc.details or {}).get("agentctl")
    details = envelope.get("details") if isinstance(envelope, dict) else None
    code = details.get("permission_code") if isinstance(details, dict) else None
    return (code if isinstance(code, str) else exc.message).endswith(_SETTLED)
