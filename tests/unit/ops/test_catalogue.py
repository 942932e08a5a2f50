"""The catalogue of subjects, with rates."""

from typing import Any

from tieline_ops.cli import catalogue


def stats(requests: int) -> list[dict[str, Any]]:
    endpoint = {"subject": "tieline.rpc.streams.list.*", "num_requests": requests}
    return [{"name": "streams", "id": id, "endpoints": [endpoint]} for id in ("a", "b")]


def test_every_kind_of_subject_is_there() -> None:
    rows = catalogue.rows({}, 1, [], [], 1)

    assert {row["kind"] for row in rows} == {"events", "command", "connection", "call", "notice", "services"}
    assert [row["subject"] for row in rows[:3]] == [
        "tieline.event.*.*.agent.*",
        "tieline.event.*.*.thread.*",
        "tieline.event.*.*.workspace.*",
    ]


def test_events_are_counted_and_requests_of_all_replicas_added_up() -> None:
    rows = catalogue.rows({"agent": 50}, 2, stats(10), stats(40), 2)
    rates = {row["subject"]: row["rate"] for row in rows}

    assert rates["tieline.event.*.*.agent.*"] == 25
    assert rates["tieline.event.*.*.workspace.*"] == 0
    assert rates["tieline.rpc.streams.list.*"] == 30
    assert rates["tieline.command.*.*.>"] is None


def test_a_replica_that_began_anew_is_no_negative_rate() -> None:
    rows = catalogue.rows({}, 1, stats(100), stats(3), 1)

    assert next(row["rate"] for row in rows if row["kind"] == "endpoint") == 0
