"""Pure: when a socket is dialled again, and what is said about it.

Rule 1: up to 5 attempts in a row, 0.25, 0.5, 1, 2 s between them, each cut by up to half at random. Then `down` is said
        once, and one attempt every 5 s follows in silence.
Rule 2: a connection that lives for 30 s starts the count anew; one that dies sooner was an attempt like those that
        failed.
Rule 3: after `down`, `up` is said only once a connection has lasted a little: one that is accepted and dies at once,
        for ever, says nothing.
Rule 4: a daemon whose connections die of what it sends, 5 times without one that lived for 30 s, is given up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

WAITS = (0.25, 0.5, 1.0, 2.0)
ATTEMPTS = len(WAITS) + 1
SLOW = 5.0
HEALTHY = 30.0
PROBATION = 2.0
OFFENCES = 5


@dataclass(frozen=True, slots=True)
class Again:
    """Wait `seconds`, then dial. `state` is what to say meanwhile; None: nothing."""

    seconds: float
    state: str | None


class Retry:
    """The attempts of one socket. `chance` gives a number in [0, 1)."""

    def __init__(self, chance: Callable[[], float], healthy: float = HEALTHY, slow: float = SLOW) -> None:
        self._chance = chance
        self._healthy = healthy
        self._slow = slow
        self._up_since: float | None = None
        self._down = False
        self._offences = 0
        self.attempt = 0

    def dialling(self) -> bool:
        """An attempt begins. Returns whether to say so."""
        self.attempt += 1
        return self.attempt <= ATTEMPTS

    def up(self, now: float) -> float:
        """The attempt succeeded. Returns how long it must last before that is said."""
        self._up_since = now
        return PROBATION if self._down else 0.0

    def said_up(self) -> None:
        self._down = False

    def lost(self, now: float) -> Again:
        """The attempt failed, or the connection that it made has ended."""
        since, self._up_since = self._up_since, None
        if since is not None and now - since >= self._healthy:
            self.attempt = self._offences = 0
            return Again(0.0, "waiting")
        if self.attempt < ATTEMPTS:
            return Again(WAITS[self.attempt - 1] * (1 - self._chance() / 2), "waiting")
        state = None if self._down else "down"
        self._down = True
        return Again(self._slow, state)

    def offended(self) -> bool:
        """The connection that was lost just now died of what the daemon sent. Returns whether to give it up."""
        self._offences += 1
        return self._offences >= OFFENCES
