"""The way to the owner of a remote: through the gateway that holds its connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tieline_protocol import jsontext, subjects
from tieline_protocol.bus import Bus, Received
from tieline_protocol.errors import Code, NoResponders, Refused
from tieline_protocol.messages import answer, outcome
from tieline_protocol.remotes import RemoteRecord

from tieline_remotes.calls import Asked

_TAKEN = answer({})
_HAND_OVER = 5.0  # s for a gateway to take a call; it only writes a frame


class Stale(Refused):
    """The gateway has a newer registration, or the connection is gone: nothing ran, read again."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.DISCONNECTED, message)


class RemoteConnection:
    """One registration's connection: its functions, and calls of them (the seed's name)."""

    def __init__(self, bus: Bus, record: RemoteRecord) -> None:
        self.record = record
        self.asked = Asked(record.gateway, record.connection)
        self._bus = bus

    def _subject(self, verb: str) -> str:
        return subjects.connection(self.record.gateway, self.record.connection, verb)

    def call_quickly(
        self,
        request_id: str,
        function: str,
        args: dict[str, Any],
        remaining_ms: int,
        traceparent: str | None,
        handed: Callable[[Received | Exception], None],
    ) -> bool:
        """`call` without a task: `handed` is told what came back, for `taken`. False: nothing was sent."""
        request = self._request(request_id, function, args, remaining_ms, traceparent)
        return self._bus.ask(self._subject("remote-call"), request, _HAND_OVER, handed)

    async def call(
        self,
        request_id: str,
        function: str,
        args: dict[str, Any],
        remaining_ms: int,
        traceparent: str | None = None,
    ) -> None:
        """Hand a call to the owner's socket. Raises Stale (nothing ran), Refused, Unavailable (it may have run)."""
        request = self._request(request_id, function, args, remaining_ms, traceparent)
        answered: Received | Exception
        try:
            answered = await self._bus.request(self._subject("remote-call"), request, _HAND_OVER)
        except NoResponders as exc:
            answered = exc
        self.taken(answered)

    def taken(self, answered: Received | Exception) -> None:
        """What the hand-over means. Raises as `call` does."""
        if isinstance(answered, NoResponders):
            raise Stale("the remote's gateway is gone") from answered
        if isinstance(answered, Exception):
            raise answered
        if answered.data == _TAKEN:
            return
        try:
            outcome(answered.data)
        except Refused as refused:
            if refused.code in (Code.CONFLICT, Code.NOT_FOUND):
                raise Stale(refused.message) from refused
            raise

    def _request(
        self, request_id: str, function: str, args: dict[str, Any], remaining_ms: int, traceparent: str | None
    ) -> bytes:
        # A messages.Request, written without a detour: every call goes this way.
        request: dict[str, Any] = {
            "id": request_id,
            "user": self.record.user,
            "budget_ms": remaining_ms,
            "payload": {
                "requestId": request_id,
                "remotename": self.record.remotename,
                "function": function,
                "args": args,
                "registration": self.record.registration,
            },
        }
        if traceparent is not None:
            request["traceparent"] = traceparent
        return jsontext.dumps(request)

    async def cancel(self, request_id: str, reason: str) -> None:
        """Tell the owner that nobody waits any more; nothing comes back."""
        await cancel(self._bus, self.asked, request_id, reason)


async def cancel(bus: Bus, asked: Asked, request_id: str, reason: str) -> None:
    """Tell the owner of a call that nobody waits any more; nothing comes back. Raises Unavailable."""
    subject = subjects.connection(asked.gateway, asked.connection, "remote-call-cancel")
    await bus.publish(subject, jsontext.dumps({"requestId": request_id, "reason": reason}))
