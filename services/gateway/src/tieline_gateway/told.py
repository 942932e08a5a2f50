"""Pure: what a gateway tells operators of its connections, in its answer to STATS of the services convention."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

MOST = 1_000  # connections in one answer; those who have most waiting go first


class Connected(Protocol):
    """A connection, as far as it is told of."""

    @property
    def id(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def facts(self) -> dict[str, Any]: ...


class Sample(Protocol):
    """A value of a histogram of seconds, as prometheus-client has it."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> dict[str, str]: ...
    @property
    def value(self) -> float: ...


def took(samples: Iterable[Sample]) -> dict[str, int]:
    """How many requests were answered, and within how many ns the middle and the slowest ones; those that open a
    session, which may take a minute, aside."""
    buckets: dict[float, float] = {}
    for sample in samples:
        if "le" in sample.labels and sample.labels.get("action") != "session.open":
            bound = float(sample.labels["le"])
            buckets[bound] = buckets.get(bound, 0) + sample.value
    total = max(buckets.values(), default=0)
    return {
        "requests": int(total),
        "p50": _within(buckets, total * 0.5),
        "p99": _within(buckets, total * 0.99),
    }


def _within(buckets: dict[float, float], wanted: float) -> int:
    """The bound of the first bucket that holds so many; of the last finite one where none does."""
    bounds = sorted(bound for bound in buckets if bound < float("inf"))
    found = next((bound for bound in bounds if buckets[bound] >= wanted), bounds[-1] if bounds else 0.0)
    return int(found * 1e9) if wanted else 0


def told(process: str, connections: Iterable[Connected], samples: Iterable[Sample] = ()) -> dict[str, Any]:
    """The connections of a gateway process, and how long its answers take.

    `unknown` counts those that have not said yet whose they are.
    """
    every = list(connections)
    known = [{"connection": one.id, "user": one.user, **one.facts} for one in every if one.user]
    known.sort(key=lambda facts: (-int(facts["waiting_bytes"]), facts["connection"]))
    return {
        "process": process,
        "connections": known[:MOST],
        "total": len(every),
        "unknown": len(every) - len(known),
        "in_flight": sum(int(facts["in_flight"]) for facts in known),
        **took(samples),
    }
