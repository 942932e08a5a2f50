"""What a gateway tells operators of its connections."""

from dataclasses import dataclass, field
from typing import Any

from tieline_gateway.told import MOST, told


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
