"""Pure: replies to the daemon's requests, until they have arrived as far as anybody can tell.

Rule 1: a request is carried out once. One that comes again is not: its reply is sent again where there is one.
Rule 2: a reply waits until a socket takes it. What a socket took shortly before it was lost may be lost too, so the
        next one gets it again: the daemon ignores a reply that it does not wait for, and waits for ever for one that
        never comes.
"""

from __future__ import annotations

from collections import OrderedDict

KEPT = 30.0  # s: a socket that is dead is found dead after 9
MOST_BYTES = 16 * 1024 * 1024


class Replies:
    """Of one instance, by the id of the request."""

    def __init__(self, kept: float = KEPT, most_bytes: int = MOST_BYTES) -> None:
        self._kept = kept
        self._most_bytes = most_bytes
        self._under_way: set[str] = set()
        self._waiting: OrderedDict[str, bytes] = OrderedDict()
        self._sent: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    def begin(self, id: str, now: float) -> bool:
        """A request came. Returns whether it is to be carried out."""
        self._forget(now)
        if id in self._sent:
            self._waiting[id] = self._sent.pop(id)[1]
            return False
        if id in self._under_way or id in self._waiting:
            return False
        self._under_way.add(id)
        return True

    def put(self, id: str, reply: bytes) -> bool:
        """The reply is known. Returns False where too much waits already: then a smaller one must be put."""
        if id not in self._under_way:
            return True  # replied already
        waiting = sum(map(len, self._waiting.values()))
        if waiting and len(reply) > 1_024 and waiting + len(reply) > self._most_bytes:
            return False
        self._under_way.discard(id)
        self._waiting[id] = reply
        return True

    def next(self) -> bytes | None:
        """The reply that is to be sent now."""
        return next(iter(self._waiting.values()), None)

    def sent(self, now: float) -> None:
        """A socket took what `next` gave."""
        id, reply = self._waiting.popitem(last=False)
        self._sent[id] = (now + self._kept, reply)
        self._forget(now)

    def connected(self, now: float) -> None:
        """There is a new socket: what the last one may have lost comes first."""
        self._forget(now)
        again = OrderedDict((id, reply) for id, (_, reply) in self._sent.items())
        self._sent.clear()
        again.update(self._waiting)
        self._waiting = again

    def _forget(self, now: float) -> None:
        kept = sum(len(reply) for _, reply in self._sent.values())
        while self._sent:
            until, reply = next(iter(self._sent.values()))
            if until > now and kept <= self._most_bytes:
                return
            self._sent.popitem(last=False)
            kept -= len(reply)
