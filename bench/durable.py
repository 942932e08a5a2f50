"""Figure: what keeping every event costs: the same batches to one viewer, stored and confirmed, or only passed on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.measure import Figure, Goal, figure, median, orders, ratios
from bench.stack import Stack, stack

GOAL = Goal(
    "durable_cost",
    "x",
    0.5,
    "higher",
    "1 KB events/s to one viewer, each batch stored and confirmed ÷ with a broker that stores nothing",
)
_SIZE = 1024
_LET_GATHER = 0.0005  # one viewer: what may be under way must never be what limits


class Race:
    """One owner, one gateway, one viewer; each run has a session of its own, since what is not stored is a hole."""

    def __init__(self, running: Stack) -> None:
        self._running = running
        self._owner = running.worker("owner")
        self._sink = running.worker("sink")
        self._owner.call("own", user="bench", session="first")
        running.start_gateway()
        self._runs = 0

    def run(self, variant: str, count: int) -> float:
        """Events per second, from the first publish to the last byte at the viewer."""
        self._runs += 1
        session = f"bench{self._runs}"
        owner, sink, stored = self._owner, self._sink, variant == "stored"
        owner.call("own", user="bench", session=session)
        subscribe = {"session_id": session, "logs": ["agent"], "cursors": {"agent": "now"}}
        url, token = self._running.gateway_url, self._running.token("bench")
        sink.call("join", url=url, token=token, subscribe=subscribe)
        prepared = owner.call("prepare", count=count, size=_SIZE)
        owner.call("keep", stored=stored)
        sink.send("swallow", gather=_LET_GATHER, **prepared)
        began = owner.call("publish", stored=stored)["began"]
        ended = sink.wait()["ended"]
        owner.call("keep", stored=True)
        sink.call("leave")
        return float(count / (ended - began))


def measure(folder: Path, quick: bool, say: Callable[[str], None]) -> list[Figure]:
    repetitions, count = (3, 10_000) if quick else (7, 120_000)
    variants = ("stored", "passed on")
    rates: dict[str, list[float]] = {variant: [] for variant in variants}
    with stack(folder) as running:
        race = Race(running)
        for variant in variants:
            race.run(variant, 4_000)  # to warm up
        for order in orders(variants, repetitions):
            for variant in order:
                rates[variant].append(race.run(variant, count))
    say("one viewer: " + ", ".join(f"{name} {median(rates[name]):,.0f} events/s" for name in variants))
    return [figure(GOAL, ratios(rates["stored"], rates["passed on"]))]
