"""What is told of sessions, threads, remotes and services."""

from typing import Any

import pytest
from tieline_ops.cli import describe
from tieline_ops.cli.describe import Owner
from tieline_protocol import subjects
from tieline_protocol.messages import SessionRecord, ThreadRecord
from tieline_protocol.remotes import RemoteFunction, RemoteRecord

NOW = 1_000.0


def record(session: str = "s1", **rest: Any) -> SessionRecord:
    facts: dict[str, Any] = {"user": "ann", "executor": "static", "agent": "example", "workspace": "w"}
    facts |= {"state": "ready", "created": 990_000, "updated": 990_000}
    return SessionRecord(session=session, **facts | rest)


def last(session: str = "s1") -> dict[str, dict[str, Any]]:
    return {
        subjects.event("ann", session, "agent", "turn"): {
            "state": "running",
            "generation": 3,
            "time": 995_000,
        },
        subjects.event("ann", session, "agent", "connection"): {"state": "up"},
        subjects.event("ann", session, "workspace", "connection"): {"state": "down"},
    }


def test_a_session_with_its_owner_turn_and_connections() -> None:
    told = describe.session(record(title="T"), Owner("p1", 7, False, True), last(), NOW)

    assert (told["turn"], told["turn_generation"], told["turn_seconds"]) == ("running", 3, 5.0)
    assert (told["owner"], told["owner_state"], told["epoch"]) == ("p1", "alive", 7)
    assert (told["agent_connection"], told["workspace_connection"]) == ("up", "down")
    assert (told["title"], told["age_seconds"]) == ("T", 10.0)


@pytest.mark.parametrize(
    ("owner", "state"),
    [(None, "nobody"), (Owner("p", 1, True, True), "released"), (Owner("p", 1, False, False), "gone")],
)
def test_a_session_that_nobody_owns(owner: Owner | None, state: str) -> None:
    told = describe.session(record(), owner, {}, NOW)

    assert told["owner_state"] == state
    assert told["owner"] == ("p" if state == "gone" else None)
    assert told["turn"] is None


def test_a_clock_that_is_ahead_makes_things_new() -> None:
    """B94: a daemon's or another machine's clock may be an hour ahead or behind."""
    told = describe.session(record(created=4_600_000), None, {}, NOW)

    assert told["age_seconds"] == 0


def test_its_events_are_asked_for_by_subject() -> None:
    assert set(describe.session_subjects(record())) == set(last())


RECORDS = [
    record("sabc1", title="Fix it", state="closed"),
    record("sabc2", title="Fix it"),
    record("sxyz", title="sabc"),
]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("sabc1", ["sabc1"]),
        ("Fix it", ["sabc2"]),
        ("sabc", ["sxyz"]),  # a whole title before the beginning of an id
        ("sab", ["sabc2"]),
        ("fix", ["sabc2"]),
        ("", []),
        ("nothing", []),
    ],
)
def test_a_session_is_found_by_what_a_person_types(wanted: str, found: list[str]) -> None:
    meant = describe.meant(RECORDS, wanted, lambda one: (one.session, one.title, one.state == "ready"))

    assert [one.session for one in meant] == found


def test_closed_ones_are_found_where_no_other_is() -> None:
    meant = describe.meant(RECORDS[:1], "Fix it", lambda one: (one.session, one.title, False))

    assert [one.session for one in meant] == ["sabc1"]


def test_a_thread_with_its_last_run() -> None:
    thread = ThreadRecord(thread="t1", user="ann", created=990_000, updated=990_000)
    run = {"run_id": "r1", "state": "ended", "reason": "answer", "time": 998_000}
    told = describe.thread(thread, Owner("p1", 7, False, True), True, run, NOW)

    assert (told["run"], told["run_state"], told["run_reason"], told["run_seconds"]) == (
        "r1",
        "ended",
        "answer",
        2.0,
    )
    assert (told["busy"], told["owner"], told["epoch"]) == (True, "p1", 7)
    assert describe.thread(thread, None, False, {}, NOW)["owner_state"] == "nobody"


def test_a_remote_whose_gateway_is_gone() -> None:
    function = RemoteFunction(name="f", parameters={})
    registration = RemoteRecord(
        user="ann",
        remotename="r",
        functions=(function,),
        gateway="g1",
        connection="c",
        registration="x",
        connected_at=0,
    )

    assert describe.remote(registration, ["g1"], NOW)["gateway_state"] == "alive"
    assert describe.remote(registration, [], NOW)["gateway_state"] == "gone"
    assert describe.remote(registration, [], NOW)["functions"] == ["f"]


def stats(name: str, id: str, version: str = "1", **rest: Any) -> dict[str, Any]:
    return {"name": name, "id": id, "version": version, "endpoints": [], **rest}


def test_a_replica_that_runs_another_version_differs() -> None:
    rows = describe.services(
        [stats("streams", "a"), stats("streams", "b", "2"), stats("streams", "c"), stats("agent", "d")]
    )

    assert [(row["id"], row["skew"]) for row in rows] == [
        ("d", False),
        ("a", False),
        ("b", True),
        ("c", False),
    ]


def test_a_replica_sums_its_endpoints() -> None:
    endpoints = [
        {
            "name": "list",
            "subject": "x",
            "num_requests": 3,
            "num_errors": 1,
            "data": {"in_flight": 2, "p50": 5, "p99": 9},
        },
        {
            "name": "get",
            "subject": "y",
            "num_requests": 4,
            "last_error": "bad",
            "data": {"in_flight": 1, "p50": 6, "p99": 7},
        },
        {"name": "old", "subject": "z"},
    ]
    (row,) = describe.services([stats("streams", "a", endpoints=endpoints, data={"in_flight": 10})])

    assert (row["requests"], row["errors"], row["in_flight"], row["p50"], row["p99"]) == (7, 1, 13, 6, 9)
    assert row["last_error"] == "bad"


def test_what_replicas_say_besides() -> None:
    assert describe.told_by(
        [stats("gateway", "a", data={"total": 3}), stats("gateway", "b"), stats("agent", "c")], "gateway"
    ) == [{"total": 3}]


def test_the_lag_of_a_log_is_the_owners_word() -> None:
    head = {"epoch": 7, "last": 12, "confirmed": 10, "at": 90}
    told = describe.logs(
        {"agent": head},
        {"agent": {"epoch": 7, "last": 10, "seq": 90}, "workspace": {"epoch": 7, "last": 4, "seq": 8}},
    )

    assert told["agent"] == {"epoch": 7, "last": 12, "confirmed": 10, "lag": 2, "sequence": 90, "by": "owner"}
    assert told["workspace"] == {
        "epoch": 7,
        "last": 4,
        "confirmed": 4,
        "lag": None,
        "sequence": 8,
        "by": "stream",
    }
    assert "thread" not in told
