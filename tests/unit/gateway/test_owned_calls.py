"""Calls that wait for the answer of a connection: only it may answer, and once."""

from __future__ import annotations

import random

import pytest
from tieline_gateway.owned_calls import OwnedCall, OwnedCalls


def call(id: str = "r-1", connection: str = "c1", until: float = 10) -> OwnedCall:
    replica, number = id.split("-")
    return OwnedCall(id, replica, number, connection, until)


@pytest.fixture
def calls() -> OwnedCalls:
    made = OwnedCalls()
    made.handed(call())
    return made


def test_only_the_asked_connection_may_answer(calls: OwnedCalls) -> None:
    """B01"""
    assert calls.awaited("r-1", "c2") is None
    assert calls.ended("r-1", "c2") is None
    assert calls.asked("r-1") == "c1"

    assert calls.ended("r-1", "c1") == call()


def test_a_call_is_answered_once(calls: OwnedCalls) -> None:
    """B04"""
    calls.ended("r-1", "c1")

    assert calls.ended("r-1", "c1") is None
    assert calls.asked("r-1") is None
    assert (len(calls), calls.count("c1")) == (0, 0)


def test_a_call_is_handed_over_once(calls: OwnedCalls) -> None:
    """B03"""
    assert not calls.handed(call(connection="c2"))
    assert calls.awaited("r-1", "c1")


def test_a_connection_that_closes_takes_its_calls_along_and_no_others(calls: OwnedCalls) -> None:
    """B05"""
    calls.handed(call("r-2"))
    calls.handed(call("r-3", "c2"))

    assert [gone.request_id for gone in calls.closed("c1")] == ["r-1", "r-2"]
    assert calls.closed("c1") == []
    assert [left.request_id for left in calls.all()] == ["r-3"]


def test_calls_whose_replica_is_silent_end_when_their_time_is_up(calls: OwnedCalls) -> None:
    calls.handed(call("r-2", until=20))

    assert calls.overdue(9) == []
    assert [late.request_id for late in calls.overdue(10)] == ["r-1"]
    assert calls.count("c1") == 1


def test_calls_of_a_replica_that_is_gone_end_and_no_others(calls: OwnedCalls) -> None:
    calls.handed(call("s-1"))

    assert [gone.request_id for gone in calls.replica_ended("r")] == ["r-1"]
    assert [left.request_id for left in calls.all()] == ["s-1"]
    assert calls.count("c1") == 1


def test_every_call_ends_once_whatever_happens() -> None:
    """B04 B05: 10,000 random steps."""
    chance = random.Random(7)
    calls, open, ends = OwnedCalls(), {}, 0
    for step in range(10_000):
        connection = f"c{chance.randrange(5)}"
        match chance.randrange(4):
            case 0:
                made = call(f"r-{step:x}", connection, step + chance.randrange(50))
                assert calls.handed(made)
                open[made.request_id] = made
            case 1 if open:
                id = chance.choice(list(open))
                ended = calls.ended(id, connection)
                assert (ended is not None) == (open[id].connection == connection)
                if ended is not None:
                    del open[id]
                    ends += 1
            case 2:
                for gone in calls.overdue(step):
                    assert open.pop(gone.request_id).until <= step
                    ends += 1
            case 3 if chance.random() < 0.05:
                for gone in calls.closed(connection):
                    assert open.pop(gone.request_id).connection == connection
                    ends += 1
        assert len(calls) == len(open)

    assert {each.request_id for each in calls.all()} == set(open)
    assert ends > 1_000
