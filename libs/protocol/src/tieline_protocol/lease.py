"""Pure: when a process may act, and when another one is taken for dead.

A process renews its key every second; the key expires by itself. It acts only while it is certain that nobody can
have seen its key expire: within `ACT` seconds after it *sent* its last confirmed renewal. Times are seconds of
CLOCK_BOOTTIME, which runs on while the machine sleeps; they are arguments, and checked at each use, never in a
timer, since a stopped process notices no timer.
"""

from __future__ import annotations

from collections.abc import Iterable

TTL = 8.0  # s, after which the broker forgets a key that was not renewed
RENEW = 1.0  # s between renewals
ACT = 7.0  # s after a confirmed renewal was sent, within which a process acts
CLOSE = 7.5  # s after which it closes what it holds


class Lease:
    """One process's own view of its key."""

    def __init__(self) -> None:
        self._sent = float("-inf")
        self._refused = False

    def renewed(self, sent: float) -> None:
        """A renewal that was sent at `sent` is confirmed."""
        self._sent = max(self._sent, sent)
        self._refused = False

    def refused(self) -> None:
        """The key is somebody else's or gone, and the broker's leader says so."""
        self._refused = True

    def may_act(self, now: float) -> bool:
        """Whether the process may use what it hears, write and answer."""
        return not self._refused and now - self._sent < ACT

    def must_close(self, now: float) -> bool:
        """Whether the process must close what it holds."""
        return self._refused or now - self._sent >= CLOSE


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
