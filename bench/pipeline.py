"""Figures: one viewer through the whole system, against a direct client and against the obvious pipeline.

All three receive the same prepared 1 KB events of the agent stream from the same source. That log has back-pressure
on every hop up to the source, so nothing may be lost, and the viewer counts that nothing is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench import cursors
from bench.measure import Figure, Goal, figure, median, orders, ratios
from bench.stack import Stack, stack
from bench.workers import BenchError

DIRECT = Goal(
    "pipeline_vs_direct_client_1k",
    "x",
    0.5,
    "higher",
    "1 KB events/s to one viewer ÷ a client connected to the source",
)
OBVIOUS = Goal(
    "pipeline_vs_obvious_1", "x", 2, "higher", "1 KB events/s to one viewer ÷ the obvious pipeline"
)
_SIZE = 1024
_VARIANTS = ("system", "direct", "obvious")


class Race:
    """Everything that takes part, ready to run."""

    def __init__(self, running: Stack) -> None:
        self.source = running.worker("source")
        running.start_streams({"source": self.source.call("where")["control_url"]})
        running.start_gateway()
        self._running = running
        self._sink = running.worker("sink")
        self._direct = running.worker("direct")
        self._first_hop, second_hop = running.worker("obvious_streams"), running.worker("obvious_gateway")
        self._obvious_url = second_hop.call("where")["url"]
        viewer = running.viewer("bench")
        self._session = viewer.request("session.open", {"executor": "source", "agent": "bench"})["session_id"]
        self._instances = {"system": self.source.call("newest")["instance"]}
        viewer.request("agent.prompt", {"session_id": self._session, "text": "say much"})
        viewer.close()
        for variant, follower in (("direct", self._direct), ("obvious", self._first_hop)):
            made = self.source.call("instance")
            self._instances[variant] = made["instance"]
            follower.call("join", url=made["url"])

    def run(self, variant: str, count: int) -> float:
        """Events per second, from the source's first write to the last event at the viewer."""
        follower = self._direct if variant == "direct" else self._sink
        facts = {"wanted": count}
        if variant != "direct":
            self._join(variant)
            facts["least"] = _SIZE
        follower.send("count", **facts)
        began = self.source.call("send", instance=self._instances[variant], count=count, size=_SIZE)["began"]
        counted = follower.wait()
        if variant != "direct":
            self._sink.call("leave")
            if problem := cursors.wrong(counted["first"], counted["last"], counted["events"]):
                raise BenchError(f"{variant}: {problem}")
        return float(count / (counted["ended"] - began))

    def _join(self, variant: str) -> None:
        if variant == "obvious":
            self._sink.call("join", url=self._obvious_url)
            return
        subscribe = {"session_id": self._session, "logs": ["agent"], "cursors": {"agent": "now"}}
        token = self._running.token("bench")
        self._sink.call("join", url=self._running.gateway_url, token=token, subscribe=subscribe)


def measure(folder: Path, quick: bool, say: Callable[[str], None]) -> list[Figure]:
    repetitions = 3 if quick else 7
    # The obvious pipeline has no back-pressure: its run must fit into the buffers between its hops.
    counts = {"system": 80_000, "direct": 80_000, "obvious": 25_000}
    if quick:
        counts = {variant: count // 4 for variant, count in counts.items()}
    rates: dict[str, list[float]] = {variant: [] for variant in _VARIANTS}
    with stack(folder) as running:
        race = Race(running)
        for variant in _VARIANTS:
            race.run(variant, 4_000)  # to warm up
        used: dict[str, float] = {}
        for order in orders(_VARIANTS, repetitions):
            for variant in order:
                before = running.usage()
                rates[variant].append(race.run(variant, counts[variant]))
                if variant == "system":
                    for name, cpu in running.usage().items():
                        used[name] = used.get(name, 0) + cpu - before[name]
    events = counts["system"] * repetitions
    shares = ", ".join(f"{name} {cpu / events * 1e6:.2f}" for name, cpu in used.items())
    say("one viewer: " + ", ".join(f"{name} {median(rates[name]):,.0f} events/s" for name in _VARIANTS))
    say(f"one viewer: CPU of the system in µs an event: {shares}")
    return [
        figure(DIRECT, ratios(rates["system"], rates["direct"])),
        figure(OBVIOUS, ratios(rates["system"], rates["obvious"])),
    ]
