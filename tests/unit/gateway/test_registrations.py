"""Who has which name here, and what the bucket's word changes about it."""

from __future__ import annotations

import random

import pytest
from tieline_gateway.registrations import Registrations, Verdict

KEY = "u_ada.browser"


@pytest.fixture
def here() -> Registrations:
    """Connection c1 has the name, by registration r1."""
    made = Registrations()
    begin(made, "c1", "r1")
    made.written("c1", "browser", "r1")
    return made


def begin(here: Registrations, connection: str, id: str, name: str = "browser") -> None:
    here.writing(f"u_ada.{name}", connection, name, id, {"remotename": name})


def names(verdict: Verdict) -> tuple[list[str], list[str]]:
    return [one.connection for one in verdict.replaced], [one.connection for one in verdict.missing]


def test_a_call_must_bear_the_present_registration(here: Registrations) -> None:
    assert here.accepts("c1", "browser", "r1")
    assert not here.accepts("c1", "browser", "r0")
    assert not here.accepts("c1", "browser", None)
    assert not here.accepts("c1", "other", "r1")
    assert not here.accepts("c2", "browser", "r1")


def test_while_a_newer_registration_is_written_both_count_and_then_only_it(here: Registrations) -> None:
    begin(here, "c1", "r2")
    assert here.accepts("c1", "browser", "r1")
    assert here.accepts("c1", "browser", "r2")

    here.written("c1", "browser", "r2")

    assert not here.accepts("c1", "browser", "r1")
    assert here.accepts("c1", "browser", "r2")


def test_a_newer_registration_that_is_refused_changes_nothing(here: Registrations) -> None:
    before = here.get("c1", "browser")
    begin(here, "c1", "r2")

    here.refused("c1", "browser", "r2", before)

    assert here.accepts("c1", "browser", "r1")
    assert not here.accepts("c1", "browser", "r2")


def test_a_first_registration_that_is_refused_leaves_nothing() -> None:
    here = Registrations()
    begin(here, "c1", "r1")
    here.refused("c1", "browser", "r1", None)

    assert here.count("c1") == 0
    assert KEY not in here
    here.refused("c1", "browser", "r1", None)


def test_a_registration_of_unknown_fate_counts(here: Registrations) -> None:
    begin(here, "c1", "r2")
    here.unknown("c1", "browser")
    here.unknown("c9", "browser")

    assert here.accepts("c1", "browser", "r1")
    assert here.accepts("c1", "browser", "r2")
    assert here.heard(KEY, "r9")


def test_ones_own_write_asks_nobody(here: Registrations) -> None:
    assert not here.heard(KEY, "r1")
    assert not here.heard("u_eve.browser", "r9")


def test_the_last_registration_wins_and_the_loser_is_known(here: Registrations) -> None:
    """B06"""
    begin(here, "c2", "r2")
    assert here.heard(KEY, "r2")
    here.written("c2", "browser", "r2")

    assert names(here.judged(KEY, "r2")) == (["c1"], [])
    assert not here.accepts("c1", "browser", "r1")
    assert here.accepts("c2", "browser", "r2")
    assert names(here.judged(KEY, "r2")) == ([], [])


def test_who_is_just_registering_is_not_judged_by_older_writes(here: Registrations) -> None:
    begin(here, "c2", "r2")
    assert names(here.judged(KEY, "r1")) == ([], [])

    assert here.written("c2", "browser", "r2"), "the bucket must be asked again"


def test_a_name_that_was_written_by_others_while_it_was_registered_is_asked_about(
    here: Registrations,
) -> None:
    begin(here, "c1", "r2")
    assert not here.heard(KEY, "r9")

    assert here.written("c1", "browser", "r2")
    assert not here.written("c9", "browser", "r2")


def test_a_name_that_is_gone_from_the_bucket_is_registered_again(here: Registrations) -> None:
    assert here.heard(KEY, None)
    assert names(here.judged(KEY, None)) == ([], ["c1"])
    assert here.keys == [KEY]


def test_a_connection_that_closes_leaves_its_successor_alone(here: Registrations) -> None:
    """B06"""
    begin(here, "c2", "r2")
    begin(here, "c1", "r3", "other")

    assert here.closed("c1") == ["browser", "other"]
    assert here.closed("c1") == []
    assert not here.left("c1", "browser")
    assert here.keys == [KEY]
    assert here.get("c1", "browser") is None
    assert here.accepts("c2", "browser", "r2")


def test_whatever_happens_one_connection_has_a_name_in_the_end() -> None:
    """B06: 10,000 random steps of three connections that fight for two names; the bucket decides."""
    chance = random.Random(11)
    here, bucket, number = Registrations(), {}, 0
    under_way: list[tuple[str, str, str]] = []
    for _ in range(10_000):
        connection, name = f"c{chance.randrange(3)}", chance.choice(["a", "b"])
        key = f"u_ada.{name}"
        match chance.randrange(5):
            case 0 if not any(one[:2] == (connection, name) for one in under_way):
                number += 1
                begin(here, connection, f"r{number}", name)
                bucket[key] = f"r{number}"
                under_way.append((connection, name, f"r{number}"))
            case 1 if under_way:
                one = under_way.pop(chance.randrange(len(under_way)))
                if here.written(*one):
                    here.judged(f"u_ada.{one[1]}", bucket.get(f"u_ada.{one[1]}"))
            case 2:
                if here.heard(key, bucket.get(key)):
                    here.judged(key, bucket.get(key))
            case 3 if chance.random() < 0.1:
                here.closed(connection)
                under_way = [one for one in under_way if one[0] != connection]
            case 4 if chance.random() < 0.1:
                bucket.pop(key, None)
    for one in under_way:
        here.written(*one)
    for key in here.keys:
        here.judged(key, bucket.get(key))

    for name in ("a", "b"):
        holders = [c for c in ("c0", "c1", "c2") if here.get(c, name) is not None]
        has = bucket.get(f"u_ada.{name}")
        if has is not None:
            assert [c for c in holders if not here.accepts(c, name, has)] == []
            assert len(holders) <= 1
