"""Pure: what of a log is in flight, what is confirmed, and what must be published again.

Rule 1: batches are confirmed in order, each by its own acknowledgement, whose stream sequence must be higher than that
        of the batch before it. An acknowledgement says nothing about earlier batches.
Rule 2: one that is an error, out of order or missing for too long makes us forget all later ones and publish
        everything from the first unconfirmed batch again: the same bytes in the same order. So does a reconnect.
Rule 3: after that, half as many are in flight as before, and one more with each confirmation: whatever could not take
        so many at once (a broker, our own reading of acknowledgements) is not met with the same burst again.
"""

from __future__ import annotations

from collections import deque

from tieline_protocol.numbering import Outgoing
from tieline_protocol.reader import WINDOW

FIRST_PATIENCE = 1.0
MOST_PATIENCE = 4.0
MOST_FLIGHTS = 8_192  # batches: far fewer than acknowledgements that a subscription may hold
FEWEST_FLIGHTS = 8
SLACK = 64 * 1024  # the size of a batch is known for certain only once it is framed


class Window:
    """The batches of one log that are not confirmed. `name` of a batch: what its acknowledgement is told apart by."""

    def __init__(self, size: int = WINDOW - SLACK) -> None:
        self.size = size
        self.confirmed = 0  # the last offset that is certainly stored
        self.at = 0  # its stream sequence
        self.repeats = 0
        self._flights: deque[Outgoing] = deque()
        self._bytes = 0
        self._done = 0  # how many batches were ever confirmed: the number of the first in flight
        self._sent = 0  # how many in flight were given to the connection in this round
        self._most = MOST_FLIGHTS
        self._round = 0
        self._patience = FIRST_PATIENCE
        self._deadline: float | None = None
        self._hold_until = 0.0
        self._strikes = 0

    @property
    def bytes(self) -> int:
        return self._bytes

    def __len__(self) -> int:
        return len(self._flights)

    @property
    def empty(self) -> bool:
        return not self._flights

    @property
    def unsent(self) -> bool:
        """Whether some were not given to the connection yet."""
        return self._sent < len(self._flights)

    def room(self, more: int, gathered: int = 0) -> bool:
        """Whether `more` bytes may be added to `gathered` ones that will be; what is larger than all goes alone."""
        return self._bytes + gathered + more <= self.size or not (self._flights or gathered)

    def add(self, batch: Outgoing) -> None:
        self._flights.append(batch)
        self._bytes += len(batch.data)

    def next(self, now: float) -> tuple[str, Outgoing] | None:
        """The next batch to give to the connection, and its name. Call `sent` before it is given."""
        if now < self._hold_until or self._sent >= min(len(self._flights), self._most):
            return None
        return f"{self._round}_{self._done + self._sent}", self._flights[self._sent]

    def sent(self, now: float) -> None:
        self._sent += 1
        if self._deadline is None:
            self._deadline = now + self._patience

    def acked(self, name: str, seq: int | None, now: float) -> bool:
        """An acknowledgement, `seq` None where it is an error. Returns whether more is confirmed than before."""
        round, _, number = name.partition("_")
        if round != str(self._round) or not number.isdigit():
            return False
        index = int(number) - self._done
        if not 0 <= index < self._sent:
            return False
        if index > 0 or seq is None or seq <= self.at:
            self._failed(now)
            return False
        flight = self._flights.popleft()
        self._bytes -= len(flight.data)
        self._done += 1
        self._sent -= 1
        self.confirmed, self.at = flight.last, seq
        self._patience = FIRST_PATIENCE
        self._strikes = 0
        self._most = min(self._most + 1, MOST_FLIGHTS)
        self._deadline = now + self._patience if self._sent else None
        return True

    def again(self) -> None:
        """Publish everything that is not confirmed again (the connection is a new one)."""
        if self._sent:
            self.repeats += 1
            self._most = max(self._sent // 2, FEWEST_FLIGHTS)
        self._round += 1
        self._sent = 0
        self._deadline = None
        self._hold_until = 0.0

    def tick(self, now: float) -> None:
        """Time has passed: is an acknowledgement missing?"""
        if self._deadline is not None and now >= self._deadline:
            self._patience = min(self._patience * 2, MOST_PATIENCE)
            self.again()

    def due(self, now: float) -> float | None:
        """When `tick` or `next` will have something to do without being asked."""
        if self._sent < len(self._flights) and now < self._hold_until:
            return self._hold_until
        return self._deadline

    def _failed(self, now: float) -> None:
        # The first time at once; a broker that goes on refusing is not asked in a tight loop.
        wait = 0.0 if self._strikes == 0 else min(FIRST_PATIENCE * 2 ** (self._strikes - 1), MOST_PATIENCE)
        self._strikes += 1
        self.again()
        self._hold_until = now + wait if wait else 0.0
