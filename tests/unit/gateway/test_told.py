"""What a gateway tells operators of its connections."""

from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from tieline_gateway.told import MOST, told, took


@dataclass
class Someone:
    id: str
    user: str = "ann"
    facts: dict[str, Any] = field(default_factory=dict)


def someone(id: str, waiting: int = 0, user: str = "ann") -> Someone:
    return Someone(id, user, {"waiting_bytes": waiting, "in_flight": 2})


def test_those_who_have_most_waiting_are_told_first() -> None:
    answer = told("g1", [someone("b"), someone("a"), someone("slow", 7)])

    assert [one["connection"] for one in answer["connections"]] == ["slow", "a", "b"]
    assert (answer["process"], answer["total"], answer["in_flight"]) == ("g1", 3, 6)


def test_who_has_not_said_who_it_is_is_counted_only() -> None:
    answer = told("g1", [someone("a"), someone("b", user="")])

    assert (answer["total"], answer["unknown"], len(answer["connections"])) == (2, 1, 1)


def test_an_answer_holds_so_many_connections_and_counts_all() -> None:
    answer = told("g1", [someone(str(n)) for n in range(MOST + 5)])

    assert (answer["total"], len(answer["connections"])) == (MOST + 5, MOST)


def test_how_long_answers_take() -> None:
    histogram = Histogram("t_seconds", "Time", ["action"], registry=CollectorRegistry())
    for n in range(100):
        histogram.labels(action="agent.prompt" if n % 2 else "shell.input").observe(0.004 if n < 98 else 0.6)
    histogram.labels(action="session.open").observe(30)
    samples = [sample for metric in histogram.collect() for sample in metric.samples]

    assert took(samples) == {"requests": 100, "p50": 5_000_000, "p99": 750_000_000}
    assert took([]) == {"requests": 0, "p50": 0, "p99": 0}


def test_what_takes_longer_than_anything_that_is_counted() -> None:
    histogram = Histogram("t_seconds", "Time", ["action"], registry=CollectorRegistry())
    histogram.labels(action="x").observe(90)

    assert took([s for metric in histogram.collect() for s in metric.samples])["p99"] == 10_000_000_000
