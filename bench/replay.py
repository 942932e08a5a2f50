"""Figure: a late viewer is given what is stored, through the gateway, against a pull consumer that parses.

Both read 10,000 events of 1 KB from the same broker. Nobody else watches the log: the gateway has to begin with it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench import cursors
from bench.measure import Figure, Goal, figure, median, orders, ratios
from bench.stack import stack
from bench.workers import BenchError

GOAL = Goal(
    "replay_vs_pull",
    "x",
    5,
    "higher",
    "time of a pull consumer that parses 10,000 stored events of 1 KB ÷ time until a late viewer has them",
)
_EVENTS = 10_000
_SIZE = 1024


def measure(folder: Path, quick: bool, say: Callable[[str], None]) -> list[Figure]:
    repetitions = 3 if quick else 9
    seconds: dict[str, list[float]] = {"gateway": [], "pull": []}
    with stack(folder) as running:
        owner, puller, sink = (running.worker(name) for name in ("owner", "pull", "sink"))
        owner.call("own", user="bench", session="bench")
        gateway = running.start_gateway()
        owner.call("prepare", count=_EVENTS, size=_SIZE)
        owner.call("publish", watched=False)
        puller.call("store", count=_EVENTS, size=_SIZE)
        joins = {
            "url": running.gateway_url,
            "token": running.token("bench"),
            "subscribe": {"session_id": "bench", "logs": ["agent"]},
        }
        cpu = 0.0
        for number, order in enumerate([["gateway", "pull"], *orders(["gateway", "pull"], repetitions)]):
            for variant in order:
                used = gateway.cpu
                if variant == "gateway":
                    told = sink.call("replay", wanted=_EVENTS, least=_SIZE, **joins)
                    if problem := cursors.wrong(told["first"], told["last"], told["events"]):
                        raise BenchError(f"a late viewer: {problem}")
                else:
                    told = puller.call("replay", count=_EVENTS)
                if number:  # the first is to warm up
                    seconds[variant].append(told["seconds"])
                    cpu += gateway.cpu - used
    say(
        f"{_EVENTS:,} stored events: gateway {median(seconds['gateway']) * 1000:.0f} ms "
        f"({cpu / repetitions * 1000:.0f} ms of its CPU), pull consumer {median(seconds['pull']) * 1000:.0f} ms"
    )
    return [figure(GOAL, ratios(seconds["pull"], seconds["gateway"]))]
