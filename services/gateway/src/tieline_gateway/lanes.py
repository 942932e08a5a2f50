"""Pure: what waits for one viewer whose socket takes no more just now.

Two lanes: answers and the agent log; the workspace log. The first goes before the second, each keeps its order.

Rule 1: a bound is checked before something is queued, so one event may exceed it, and nothing more is taken then.
Rule 2: events that find their lane full are refused: who offered them is caught up from the log later.
Rule 3: answers and notifications are never refused before the bound of their own; above it the socket is closed.
"""

from __future__ import annotations

from collections import deque

CONTROL, BULK = 0, 1

Data = bytes | memoryview


class Lanes:
    """The two queues. `owner` is whose events they are, so that they can be taken back."""

    __slots__ = ("_bytes", "_most", "_most_answers", "_queues", "answer_bytes")

    def __init__(self, most: int, most_answers: int) -> None:
        self._queues: tuple[deque[tuple[object, Data]], deque[tuple[object, Data]]] = (deque(), deque())
        self._bytes = [0, 0]  # of events, by lane
        self.answer_bytes = 0
        self._most = most
        self._most_answers = most_answers

    def __bool__(self) -> bool:
        return bool(self._queues[CONTROL] or self._queues[BULK])

    @property
    def bytes(self) -> int:
        """All that waits."""
        return self._bytes[CONTROL] + self._bytes[BULK] + self.answer_bytes

    def waiting(self, lane: int) -> int:
        """Bytes of events that wait in a lane."""
        return self._bytes[lane]

    def event(self, lane: int, owner: object, data: Data) -> bool:
        """Queue events; False where their lane is full."""
        if self._bytes[lane] >= self._most:
            return False
        self._queues[lane].append((owner, data))
        self._bytes[lane] += len(data)
        return True

    def answer(self, data: Data) -> bool:
        """Queue an answer or a notification; False where too much waits already."""
        if self.answer_bytes >= self._most_answers:
            return False
        self._queues[CONTROL].append((None, data))
        self.answer_bytes += len(data)
        return True

    def take(self) -> Data | None:
        """What goes next; None where nothing waits."""
        for lane in (CONTROL, BULK):
            if self._queues[lane]:
                owner, data = self._queues[lane].popleft()
                self._gone(lane, owner, len(data))
                return data
        return None

    def forget(self, owner: object) -> None:
        """Take back the events of somebody who does not follow any more."""
        for lane in (CONTROL, BULK):
            kept = deque(item for item in self._queues[lane] if item[0] is not owner)
            if len(kept) != len(self._queues[lane]):
                for item in self._queues[lane]:
                    if item[0] is owner:
                        self._gone(lane, owner, len(item[1]))
                self._queues[lane].clear()
                self._queues[lane].extend(kept)

    def _gone(self, lane: int, owner: object, size: int) -> None:
        if owner is None:
            self.answer_bytes -= size
        else:
            self._bytes[lane] -= size
