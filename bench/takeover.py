"""Figures: how long nobody speaks for a session when the process that owns it is stopped, or killed.

Two streams processes; all sessions belong to one of them, and their daemon says something every few milliseconds.
From the signal until each session's viewer has heard the daemon through the next owner.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import Figure, Goal, figure, median
from bench.stack import Stack, stack

_SESSIONS = 10
_EVERY = 0.02
_ABOUT = f"time from {{}} to the owner of {_SESSIONS} sessions until all their viewers hear the next owner"
SIGTERM = Goal("takeover_ms_sigterm", "ms", 1_000, "lower", _ABOUT.format("SIGTERM"))
SIGKILL = Goal("takeover_ms_sigkill", "ms", 10_000, "lower", _ABOUT.format("SIGKILL"))


class Succession:
    """Sessions, their daemon, a viewer for each; an owner of all of them, and whoever comes after it."""

    def __init__(self, running: Stack) -> None:
        self._running = running
        source = running.worker("source")
        self._sink = running.worker("sink")
        self._executors = {"source": source.call("where")["control_url"]}
        self._owner = running.start_streams(self._executors)
        running.start_gateway()
        viewer = running.viewer("bench")
        wanted = {"executor": "source", "agent": "bench"}
        sessions = [viewer.request("session.open", wanted)["session_id"] for _ in range(_SESSIONS)]
        viewer.close()
        source.call("talk", every=_EVERY)
        self._sink.call("hear", url=running.gateway_url, token=running.token("bench"), sessions=sessions)

    def next(self, number: signal.Signals) -> float:
        """Milliseconds until the last viewer has heard the next owner."""
        following = self._running.start_streams(self._executors)
        self._sink.send("hear_next")
        began = time.monotonic()
        self._owner.handle.send_signal(number)
        ended = self._sink.wait()["ended"]
        self._running.stop(self._owner)
        self._owner = following
        return float(ended - began) * 1000


def measure(folder: Path, quick: bool, say: Callable[[str], None]) -> list[Figure]:
    repetitions = {signal.SIGTERM: 2, signal.SIGKILL: 1} if quick else {signal.SIGTERM: 5, signal.SIGKILL: 3}
    with stack(folder) as running:
        succession = Succession(running)
        taken = {
            number: [succession.next(number) for _ in range(times)] for number, times in repetitions.items()
        }
    for number, times in taken.items():
        say(f"takeover of {_SESSIONS} sessions after {number.name}: {median(times):,.0f} ms")
    return [figure(SIGTERM, taken[signal.SIGTERM]), figure(SIGKILL, taken[signal.SIGKILL])]
