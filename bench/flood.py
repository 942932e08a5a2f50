"""Figure: how long a small event of one session takes while another session is flooded with shell output.

Two scripted daemons, so that the flood's own loop delays nobody; one streams, one broker, one gateway for both. The
flood is not held back by anybody: its log may drop, and says so by `gap` events. Its viewer checks that no
event that got a number is missing.

The daemon that floods and the browser that shows it would be on machines of their own: here they give way to what is
measured. That they are not starved shows in the bytes that were written and that arrived.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import Figure, Goal, figure, median, orders, percentile, ratios
from bench.stack import Stack, stack
from bench.workers import Worker

GOAL = Goal(
    "flood_p99_ratio",
    "x",
    3,
    "lower",
    "p99 of another session's small event during a flood of 100 MB/s ÷ idle",
)
_FLOOD = 100e6  # bytes a second
_CHUNK = 4096
_EVERY = 0.004  # seconds between small events


def measure(folder: Path, quick: bool, say: Callable[[str], None]) -> list[Figure]:
    repetitions, beats = (3, 250) if quick else (8, 500)
    p99: dict[str, list[float]] = {"idle": [], "flood": []}
    p50: dict[str, list[float]] = {"idle": [], "flood": []}
    offered: list[float] = []
    arrived: list[float] = []
    gaps = 0
    with stack(folder) as running:
        noisy, quiet = running.worker("source"), running.worker("source")
        running.start_streams(
            {
                name: source.call("where")["control_url"]
                for name, source in (("noisy", noisy), ("quiet", quiet))
            }
        )
        running.start_gateway()
        loud, calm = running.worker("sink"), running.worker("sink")
        noisy.give_way()
        loud.give_way()
        flooded = _session(running, noisy, loud, "noisy", "workspace")
        beating = _session(running, quiet, calm, "quiet", "agent")
        _beat(quiet, calm, beating, 50)
        seconds = beats * _EVERY
        for order in orders(["idle", "flood"], repetitions):
            for variant in order:
                if variant == "flood":
                    loud.send("watch", seconds=seconds + 1.5)
                    noisy.send(
                        "flood", instance=flooded, bytes_per_second=_FLOOD, seconds=seconds + 0.5, size=_CHUNK
                    )
                    time.sleep(0.3)  # the flood is under way before the first beat
                taken = _beat(quiet, calm, beating, beats)
                p99[variant].append(percentile(taken, 0.99))
                p50[variant].append(percentile(taken, 0.5))
                if variant == "flood":
                    wrote, seen = noisy.wait(), loud.wait()
                    offered.append(wrote["bytes"] / wrote["seconds"])
                    arrived.append(seen["bytes"] / wrote["seconds"])
                    gaps += seen["gaps"]
    for variant in p99:
        say(f"small event, {variant}: p50 {median(p50[variant]):.2f} ms, p99 {median(p99[variant]):.2f} ms")
    say(
        f"flood: {median(offered) / 1e6:.0f} MB/s written, {median(arrived) / 1e6:.0f} MB/s at its viewer, "
        f"{gaps} gaps told"
    )
    return [figure(GOAL, ratios(p99["flood"], p99["idle"]))]


def _session(running: Stack, source: Worker, sink: Worker, executor: str, log: str) -> str:
    """Open a session on a source and watch one of its logs; the name of its instance."""
    viewer = running.viewer("bench")
    session = viewer.request("session.open", {"executor": executor, "agent": "bench"})["session_id"]
    viewer.close()
    subscribe = {"session_id": session, "logs": [log], "cursors": {log: "now"}}
    sink.call("join", url=running.gateway_url, token=running.token("bench"), subscribe=subscribe)
    instance: str = source.call("newest")["instance"]
    return instance


def _beat(source: Worker, sink: Worker, instance: str, count: int) -> list[float]:
    """How long each of `count` small events took from the daemon's write to the viewer, in milliseconds."""
    sink.send("latencies", wanted=count)
    source.call("beat", instance=instance, count=count, every=_EVERY)
    taken: list[float] = sink.wait()["latencies"]
    return taken
