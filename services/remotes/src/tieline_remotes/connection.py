"""The way to the owner of a remote: through the gateway that holds its connection."""

from __future__ import annotations

from typing import Any

from tieline_protocol import jsontext, subjects
from tieline_protocol.bus import Bus
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

    async def call(
        self,
        request_id: str,
        function: str,
        args: dict[str, Any],
        remaining_ms: int,
        traceparent: str | None = None,
    ) -> None:
        """Hand a call to the owner's socket. Raises Stale (nothing ran), Refused, Unavailable (it may have run)."""
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
        try:
            received = await self._bus.request(
                self._subject("remote-call"), jsontext.dumps(request), _HAND_OVER
            )
        except NoResponders as exc:
            raise Stale("the remote's gateway is gone") from exc
        if received.data == _TAKEN:
            return
        try:
            outcome(received.data)
        except Refused as refused:
            if refused.code in (Code.CONFLICT, Code.NOT_FOUND):
                raise Stale(refused.message) from refused
            raise

    async def cancel(self, request_id: str, reason: str) -> None:
        """Tell the owner that nobody waits any more; nothing comes back."""
        await cancel(self._bus, self.asked, request_id, reason)


async def cancel(bus: Bus, asked: Asked, request_id: str, reason: str) -> None:
    """Tell the owner of a call that nobody waits any more; nothing comes back. Raises Unavailable."""
    subject = subjects.connection(asked.gateway, asked.connection, "remote-call-cancel")
    await bus.publish(subject, jsontext.dumps({"requestId": request_id, "reason": reason}))
