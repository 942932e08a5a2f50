"""Figure: what one more authenticated connection that does nothing costs the gateway, in memory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import Figure, Goal, figure
from bench.rawviewer import RawViewer
from bench.stack import Process, allow_files, stack

GOAL = Goal(
    "idle_connection_kib",
    "KiB",
    16,
    "lower",
    "memory of an idle connection at 2,000 connections, each a user's",
)
_CONNECTIONS = 2_000
_BEFORE = 100  # connections that are there before the first look, so that what is made once is not counted
_SETTLE = 0.5


def measure(folder: Path, quick: bool, say: Callable[[str], None]) -> list[Figure]:
    connections = 500 if quick else _CONNECTIONS
    allow_files(connections + _BEFORE + 256)
    values: list[float] = []
    rates: list[float] = []
    for repetition in range(1 if quick else 3):
        with stack(folder / str(repetition)) as running:
            running.worker("owner").call("release")  # it has made the streams, which the gateway expects
            gateway = running.start_gateway()
            viewers = [running.viewer(f"user-{number}", buffer=2_048) for number in range(_BEFORE)]
            before = _settled(gateway, viewers)
            began = time.monotonic()
            viewers += [running.viewer(f"more-{number}", buffer=2_048) for number in range(connections)]
            rates.append(connections / (time.monotonic() - began))
            after = _settled(gateway, viewers)
            values.append((after - before) / connections / 1024)
    say(
        f"idle: {connections:,} connections, one user each; {max(rates):,.0f} a second signed in, one after the other"
    )
    return [figure(GOAL, values)]


def _settled(gateway: Process, viewers: list[RawViewer]) -> int:
    """The gateway's resident memory, once what was under way is done."""
    until = time.monotonic() + _SETTLE
    while time.monotonic() < until:
        for viewer in viewers:
            with contextlib.suppress(StopIteration):
                next(viewer.ready(0))
        time.sleep(0.05)
    return gateway.rss
