"""Figures: remote calls through the whole system against nats-py's bare request and reply.

A call goes from the caller's socket to the gateway, to the remotes service, back to the gateway, to the owner's socket,
and all the way back: four messages of the broker and four of sockets, where the baseline has two of the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.measure import Figure, Goal, figure, median, orders, percentile, ratios
from bench.stack import stack
from bench.workers import Worker

RATE = Goal(
    "remote_call_vs_request_c128",
    "x",
    0.2,
    "higher",
    "remote calls/s, 128 under way, ÷ bare nats-py request/reply",
)
LATENCY = Goal(
    "remote_call_p50_ratio_c1",
    "x",
    3.6,
    "lower",
    "p50 of a remote call, one under way, ÷ of a bare nats-py request",
)
_VARIANTS = ("calls", "requests")
_NAMES = [f"bench-{number}" for number in range(4)]  # one remote may have 64 calls under way


class Ends:
    """Both ends of both variants."""

    def __init__(self, asking: Worker, answering: Worker, bare_asking: Worker) -> None:
        self._asking, self._answering, self._bare_asking = asking, answering, bare_asking

    def run(self, variant: str, count: int, at_once: int) -> tuple[float, float]:
        """Calls per second, and the p50 of their latencies in milliseconds."""
        if variant == "calls":
            self._answering.send("answer", count=count)
            told = self._asking.call("call", remotenames=_NAMES, count=count, at_once=at_once)
            self._answering.wait()
        else:
            told = self._bare_asking.call("call", count=count, at_once=at_once)
        return count / told["seconds"], percentile(told["latencies"], 0.5)


def measure(folder: Path, quick: bool, say: Callable[[str], None]) -> list[Figure]:
    repetitions = 3 if quick else 7
    counts = {"calls": 3_000, "requests": 15_000}  # with 128 under way
    single = {"calls": 400, "requests": 1_200}
    if quick:
        counts, single = ({name: count // 4 for name, count in some.items()} for some in (counts, single))
    rates: dict[str, list[float]] = {variant: [] for variant in _VARIANTS}
    p50: dict[str, list[float]] = {variant: [] for variant in _VARIANTS}
    used: dict[str, float] = {}
    with stack(folder) as running:
        running.start_remotes()
        running.start_gateway()
        asking, answering = running.worker("caller"), running.worker("caller")
        bare_asking, bare_answering = running.worker("bare"), running.worker("bare")
        bare_answering.call("reply")
        facts = {"url": running.gateway_url, "token": running.token("bench")}
        answering.call("join", **facts, remotenames=_NAMES)
        asking.call("join", **facts)
        ends = Ends(asking, answering, bare_asking)
        for variant in _VARIANTS:
            ends.run(variant, 500, 128)  # to warm up
        for order in orders(_VARIANTS, repetitions):
            for variant in order:
                before = running.usage()
                rates[variant].append(ends.run(variant, counts[variant], 128)[0])
                if variant == "calls":
                    for name, cpu in running.usage().items():
                        used[name] = used.get(name, 0) + cpu - before[name]
            for variant in order:
                p50[variant].append(ends.run(variant, single[variant], 1)[1])
    made = counts["calls"] * repetitions
    say(
        f"128 under way: {median(rates['calls']):,.0f} calls/s, {median(rates['requests']):,.0f} requests/s; CPU in "
        f"µs a call: {', '.join(f'{name} {cpu / made * 1e6:.0f}' for name, cpu in used.items())}"
    )
    say(
        f"one under way: p50 of calls {median(p50['calls']):.2f} ms, of requests {median(p50['requests']):.2f} ms"
    )
    return [
        figure(RATE, ratios(rates["calls"], rates["requests"])),
        figure(LATENCY, ratios(p50["calls"], p50["requests"])),
    ]
