"""Pure: the first answers to commands, so that a repeated command gets the same one and acts once.

Rule: an answer is kept for 5 minutes, bounded by number and bytes; the oldest go first.
"""

from __future__ import annotations

from collections import OrderedDict

KEPT = 300.0
MOST = 20_000
MOST_BYTES = 16 * 1024 * 1024


class Answers:
    """Answers by the id of their command."""

    def __init__(self, kept: float = KEPT, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._kept = kept
        self._most = most
        self._most_bytes = most_bytes
        self._answers: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        self._bytes = 0

    def get(self, id: str, now: float) -> bytes | None:
        self._forget(now)
        found = self._answers.get(id)
        return found[1] if found else None

    def put(self, id: str, answer: bytes, now: float) -> None:
        """Keep a first answer; a second one for the same id changes nothing."""
        if id in self._answers:
            return
        self._answers[id] = (now + self._kept, answer)
        self._bytes += len(answer)
        self._forget(now)

    def _forget(self, now: float) -> None:
        while self._answers:
            until, answer = next(iter(self._answers.values()))
            if until > now and len(self._answers) <= self._most and self._bytes <= self._most_bytes:
                return
            self._answers.popitem(last=False)
            self._bytes -= len(answer)
