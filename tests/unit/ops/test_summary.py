"""One screen of a system."""

from typing import Any

from tieline_ops.cli.summary import Look, summary

SERVICE = {"service": "streams", "id": "a", "version": "1", "in_flight": 2, "errors": 0, "p50": 1, "p99": 2}


def session(**rest: Any) -> dict[str, Any]:
    usual = {
        "session": "s1",
        "user": "ann",
        "state": "ready",
        "turn": None,
        "turn_seconds": None,
        "title": "",
    }
    return {**usual, "owner_state": "alive", "agent_connection": "up", "workspace_connection": "up", **rest}


def look(at: float, requests: int = 0, last_seq: int = 0, **rest: Any) -> Look:
    usual: dict[str, Any] = {
        "services": [{**SERVICE, "requests": requests}],
        "leases": [{"renewed": 0.5}, {"renewed": None}],
        "sessions": [],
        "threads": [{"busy": True}, {"busy": False}],
        "remotes": [{}],
        "connections": [{"waiting_bytes": 5}, {"waiting_bytes": 7}],
        "streams": [
            {"stream": "S", "kind": "events", "messages": 1, "bytes": 2, "lag": 0, "last_seq": last_seq},
            {"stream": "KV", "kind": "records"},
            {"stream": "X", "kind": "events", "error": "away"},
        ],
    }
    return Look(at, **{**usual, **rest})


def test_rates_are_those_since_the_last_look() -> None:
    told = summary(look(12, requests=30, last_seq=210), look(10, requests=10, last_seq=10))

    assert told["services"][0]["per_second"] == 10
    assert [one["per_second"] for one in told["streams"]] == [100, None]


def test_the_first_look_has_no_rates() -> None:
    told = summary(look(12))

    assert told["services"][0]["per_second"] is None
    assert told["streams"][0]["per_second"] is None


def test_what_is_in_trouble_is_counted() -> None:
    sessions = [
        session(turn="waiting_permission", turn_seconds=60),
        session(session="s2", turn="running", turn_seconds=2, agent_connection="down"),
        session(owner_state="gone"),
        session(state="opening", agent_connection="connecting"),
    ]
    told = summary(look(1, sessions=sessions))

    assert told["sessions"] == {
        "open": 4,
        "ready": 3,
        "turns": 2,
        "waiting_permission": 1,
        "without_owner": 1,
        "sockets_down": 1,
    }
    assert [one["session"] for one in told["active"]] == ["s2", "s1"]
    assert (told["threads"], told["remotes"], told["connections"], told["waiting_bytes"]) == (
        {"all": 2, "open_runs": 1},
        1,
        2,
        12,
    )
    assert told["oldest_lease"] == 0.5
    assert summary(look(1, leases=[]))["oldest_lease"] is None
