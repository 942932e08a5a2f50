from __future__ import annotations

from typing import Any

from tieline_protocol.messages import SessionRecord
from tieline_streams.views import detailed, page, shown


def record(n: int, **more: Any) -> SessionRecord:
    return SessionRecord(
        session=f"s{n}",
        user="ada",
        executor="static",
        agent="example",
        workspace="w",
        created=n,
        updated=n,
        **more,
    )


def test_a_session_shows_what_is_known_and_no_address():
    assert shown(record(1)).keys() == {
        "session_id",
        "state",
        "title",
        "executor",
        "agent",
        "workspace",
        "remotes",
        "created",
        "updated",
    }
    view = shown(record(1, reason="gone", acp_session="acp"))
    assert (view["reason"], view["acp_session_id"]) == ("gone", "acp")


def test_details_add_connections_and_the_turn():
    view = detailed(record(1), {"agent": "up"}, {"type": "turn", "generation": 1, "state": "running"})

    assert view["connections"] == {"agent": "up", "workspace": "down"}
    assert view["turn"] == {"generation": 1, "state": "running"}
    assert detailed(record(1), {}, None)["turn"] is None


def test_pages_follow_each_other_newest_first():
    records = [record(n) for n in range(5)]

    first = page(records, None, 2)
    second = page(records, first["next"], 2)
    third = page(records, second["next"], 2)

    found = [one["session_id"] for part in (first, second, third) for one in part["sessions"]]
    assert found == ["s4", "s3", "s2", "s1", "s0"]
    assert "next" not in third


def test_after_a_session_that_is_gone_nothing_follows():
    assert page([record(1)], "other", None) == {"sessions": []}
    assert page([], "other", None) == {"sessions": []}
