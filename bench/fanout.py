"""Figure: 100 viewers of one log behind the shipped gateway, against `websockets.broadcast()`.

Both servers have 100 of the same cheap clients; both may have the same number of bytes under way to each. Ours
receives its batches through the broker, stored and confirmed; the other makes its events itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.measure import Figure, Goal, figure, median, orders, ratios
from bench.stack import stack
from bench.workers import Worker

GOAL = Goal(
    "fanout_vs_broadcast_100",
    "x",
    4,
    "higher",
    "deliveries/s to 100 viewers, 1 KB events, ÷ websockets.broadcast()",
)
_VIEWERS = 100
_SIZE = 1024


def measure(folder: Path, quick: bool, say: Callable[[str], None]) -> list[Figure]:
    repetitions = 3 if quick else 7
    counts = {"gateway": 4_000, "broadcast": 1_000} if quick else {"gateway": 16_000, "broadcast": 4_000}
    rates: dict[str, list[float]] = {"gateway": [], "broadcast": []}
    with stack(folder) as running:
        owner, broadcaster, sink = (running.worker(name) for name in ("owner", "broadcast", "sink"))
        owner.call("own", user="bench", session="bench")
        gateway = running.start_gateway()
        subscribe = {"session_id": "bench", "logs": ["agent"], "cursors": {"agent": "now"}}
        joins = {
            "gateway": {"url": running.gateway_url, "token": running.token("bench"), "subscribe": subscribe},
            "broadcast": broadcaster.call("where"),
        }
        publishers = {"gateway": owner, "broadcast": broadcaster}
        cpu = deliveries = 0.0
        for number, order in enumerate(
            [["gateway", "broadcast"], *orders(["gateway", "broadcast"], repetitions)]
        ):
            for variant in order:
                used = gateway.cpu
                sink.call("join", count=_VIEWERS, **joins[variant])
                rate = _run(publishers[variant], sink, counts[variant] if number else 500)
                sink.call("leave")
                if number:  # the first is to warm up
                    rates[variant].append(rate)
                    if variant == "gateway":
                        cpu += gateway.cpu - used
                        deliveries += counts[variant] * _VIEWERS
    say(
        f"fan-out to {_VIEWERS}: gateway {median(rates['gateway']):,.0f} deliveries/s "
        f"({cpu / deliveries * 1e6:.2f} µs of its CPU each, joining included), "
        f"broadcast {median(rates['broadcast']):,.0f}/s"
    )
    return [figure(GOAL, ratios(rates["gateway"], rates["broadcast"]))]


def _run(publisher: Worker, sink: Worker, count: int) -> float:
    """Deliveries per second, from the first publish to the last byte at the last viewer."""
    prepared = publisher.call("prepare", count=count, size=_SIZE)
    sink.send("swallow", **prepared)
    began = publisher.call("publish")["began"]
    ended = sink.wait()["ended"]
    return float(count * _VIEWERS / (ended - began))
