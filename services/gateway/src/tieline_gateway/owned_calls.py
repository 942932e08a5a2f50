"""Pure: calls that were handed to connections of this gateway and have no answer yet.

Rule 1: only the connection that was asked may answer a call; to every other one it does not exist.
Rule 2: a call is answered once; whatever comes later finds nothing.
"""

from __future__ import annotations

from typing import NamedTuple


class OwnedCall(NamedTuple):
    """`replica` and `number` are the parts of the requestId; `until` is of the monotonic clock, in seconds."""

    request_id: str
    replica: str
    number: str
    connection: str
    until: float


class OwnedCalls:
    """By requestId, and by connection."""

    def __init__(self) -> None:
        self._calls: dict[str, OwnedCall] = {}
        self._of: dict[str, dict[str, OwnedCall]] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def count(self, connection: str) -> int:
        """How many a connection has."""
        return len(self._of.get(connection, ()))

    def handed(self, call: OwnedCall) -> bool:
        """A call goes to its connection; False where it went before."""
        if call.request_id in self._calls:
            return False
        self._calls[call.request_id] = call
        self._of.setdefault(call.connection, {})[call.request_id] = call
        return True

    def awaited(self, request_id: str, connection: str) -> OwnedCall | None:
        """The call, if it is this connection's to answer."""
        call = self._calls.get(request_id)
        return call if call is not None and call.connection == connection else None

    def asked(self, request_id: str) -> str | None:
        """Which connection was asked, for whoever reads the log."""
        call = self._calls.get(request_id)
        return call.connection if call is not None else None

    def ended(self, request_id: str, connection: str) -> OwnedCall | None:
        """A call has its answer, or nobody waits for one any more."""
        call = self.awaited(request_id, connection)
        if call is not None:
            del self._calls[request_id]
            del self._of[connection][request_id]
            if not self._of[connection]:
                del self._of[connection]
        return call

    def closed(self, connection: str) -> list[OwnedCall]:
        """A connection is gone, and its calls with it."""
        calls = list(self._of.pop(connection, {}).values())
        for call in calls:
            del self._calls[call.request_id]
        return calls

    def overdue(self, now: float) -> list[OwnedCall]:
        """Calls whose time is up without a word from their replica: it is gone."""
        late = [call for call in self._calls.values() if now >= call.until]
        for call in late:
            self.ended(call.request_id, call.connection)
        return late

    def replica_ended(self, replica: str) -> list[OwnedCall]:
        """A replica is gone: nobody takes the answers of its calls any more."""
        calls = [call for call in self._calls.values() if call.replica == replica]
        for call in calls:
            self.ended(call.request_id, call.connection)
        return calls

    def all(self) -> list[OwnedCall]:
        return list(self._calls.values())
