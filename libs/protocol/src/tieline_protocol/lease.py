"""Pure: when a process may act, and when another one is taken for dead.

A process renews its key every second; the key expires by itself. It acts only while it is certain that nobody can
have seen its key expire: within `Terms.act` seconds after it *sent* its last confirmed renewal. Times are seconds of
CLOCK_BOOTTIME, which runs on while the machine sleeps; they are arguments, and checked at each use, never in a
timer, since a stopped process notices no timer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SCAN = 1.0  # s between looks for keys that are gone


@dataclass(frozen=True, slots=True)
class Terms:
    """How long a key lives that was not renewed, in whole seconds as the broker counts; all else follows from it."""

    ttl: int = 8

    @property
    def renew(self) -> float:
        """Seconds between renewals."""
        return self.ttl / 8

    @property
    def act(self) -> float:
        """Seconds after a confirmed renewal was sent, within which a process acts."""
        return self.ttl * 7 / 8

    @property
    def leave(self) -> float:
        """Seconds after which it ends what it can only end in order while it may still act."""
        return self.ttl * 25 / 32

    @property
    def close(self) -> float:
        """Seconds after which it closes what it holds."""
        return self.ttl * 15 / 16


class Lease:
    """One process's own view of its key."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._sent = float("-inf")
        self._refused = False

    def renewed(self, sent: float) -> None:
        """A renewal that was sent at `sent` is confirmed."""
        self._sent = max(self._sent, sent)
        self._refused = False

    def refused(self) -> None:
        """The key is somebody else's or gone, and the broker's leader says so."""
        self._refused = True

    def age(self, now: float) -> float:
        """Seconds since the last confirmed renewal was sent."""
        return now - self._sent

    def may_act(self, now: float) -> bool:
        """Whether the process may use what it hears, write and answer."""
        return not self._refused and now - self._sent < self._terms.act

    def running_out(self, now: float) -> bool:
        """Whether the process will soon not be allowed to act any more, unless a renewal is confirmed."""
        return now - self._sent >= self._terms.leave

    def must_close(self, now: float) -> bool:
        """Whether the process must close what it holds."""
        return self._refused or now - self._sent >= self._terms.close


class Presence:
    """Which processes somebody else believes to be alive."""

    def __init__(self) -> None:
        self._alive: set[str] = set()

    @property
    def alive(self) -> frozenset[str]:
        return frozenset(self._alive)

    def seen(self, process: str) -> None:
        """A process has renewed its key."""
        self._alive.add(process)

    def scanned(self, keys: Iterable[str]) -> set[str]:
        """All keys there are; returns those who were alive and are not there. Each is to be confirmed by the leader."""
        present = set(keys)
        missing = self._alive - present
        self._alive |= present
        return missing

    def ended(self, process: str) -> bool:
        """A process is gone for certain; whether that is news."""
        known = process in self._alive
        self._alive.discard(process)
        return known
