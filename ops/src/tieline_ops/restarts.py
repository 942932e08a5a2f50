"""Pure: when a service that ended on its own is started again.

At once the first time, then after waits that double up to `MOST`; a service that ran well for `HEALTHY` seconds
counts as new. One that never became ready is given `TRIES` tries: its configuration is wrong, and a loop would only
hide that.
"""

from __future__ import annotations

FIRST = 0.1
MOST = 10.0
HEALTHY = 30.0
TRIES = 3
BAD_USAGE = 2  # the exit code of a command line that was refused


class Restarts:
    """What is known of one service. Times are seconds of any clock that never goes back."""

    def __init__(self) -> None:
        self.was_ready = False
        self.ends = 0
        self._started = 0.0

    def started(self, now: float) -> None:
        self._started = now

    def ready(self) -> None:
        self.was_ready = True

    def ended(self, now: float, code: int) -> float | None:
        """How long to wait before the next start; None: give up."""
        if now - self._started >= HEALTHY:
            self.ends = 0
        self.ends += 1
        if not self.was_ready and (code == BAD_USAGE or self.ends >= TRIES):
            return None
        return min(MOST, FIRST * 2.0 ** min(self.ends - 1, 20))
