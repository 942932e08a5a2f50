"""The objectives of a system: what meets them and what does not."""

from typing import Any

import pytest
from tieline_ops.cli import objectives, verdicts
from tieline_ops.cli.verdicts import Facts, State


def service(name: str, p99: int = 1_000_000, endpoint: str = "list", **rest: Any) -> dict[str, Any]:
    endpoints = [{"endpoint": endpoint, "p99": p99}]
    return {"service": name, "id": name[0], "version": "1", "skew": False, "endpoints": endpoints, **rest}


def session(**rest: Any) -> dict[str, Any]:
    usual = {"session": "s1", "state": "ready", "owner_state": "alive", "turn": None, "turn_seconds": None}
    return {**usual, "agent_connection": "up", "workspace_connection": "up", **rest}


def stream(**rest: Any) -> dict[str, Any]:
    return {"stream": "S", "bytes": 10, "limit_bytes": 100, "lag": 0, "offline": [], **rest}


def facts(**rest: Any) -> Facts:
    usual: dict[str, Any] = {
        "rtt": 0.001,
        "services": [service(name) for name in objectives.SERVICES],
        "leases": [{"kind": name, "renewed": 0.5} for name in objectives.SERVICES],
        "sessions": [session()],
        "threads": [{"thread": "t1", "busy": True, "owner_state": "alive"}],
        "streams": [stream()],
        "gateway": 0.05,
        "scraped": 4,
    }
    return Facts(**{**usual, **rest})


def state(objective: str, **rest: Any) -> State:
    (verdict,) = objectives.judge(facts(**rest), [objective])
    return verdict.state


def test_all_is_well() -> None:
    found = objectives.judge(facts())

    assert [verdict.objective for verdict in found if verdict.state is not State.OK] == []
    assert [verdict.objective for verdict in found] == list(objectives.OBJECTIVES)
    assert verdicts.worst(found) is State.OK


def test_a_system_that_cannot_be_reached_is_critical_and_the_rest_unknown() -> None:
    found = objectives.judge(Facts(unreachable="refused"))

    assert (found[0].state, found[0].text) == (State.CRITICAL, "refused")
    assert {verdict.state for verdict in found[1:]} == {State.UNKNOWN}
    assert verdicts.worst(found) is State.CRITICAL


@pytest.mark.parametrize(
    ("objective", "wrong", "verdict"),
    [
        ("broker", {"rtt": 0.5}, State.WARNING),
        ("broker", {"rtt": 3}, State.CRITICAL),
        ("services", {"services": [service("gateway")]}, State.CRITICAL),
        ("versions", {"services": [service("agent", skew=True)]}, State.WARNING),
        ("latency", {"services": [service("agent", 3_000_000_000)]}, State.WARNING),
        ("latency", {"services": [service("agent", 30_000_000_000)]}, State.CRITICAL),
        ("latency", {"services": [service("streams", 30_000_000_000, "open")]}, State.OK),
        ("latency", {"services": []}, State.OK),
        ("leases", {"leases": []}, State.CRITICAL),
        ("leases", {"leases": [{"kind": name, "renewed": 5} for name in objectives.SERVICES]}, State.WARNING),
        ("owners", {"sessions": [session(owner_state="gone")]}, State.CRITICAL),
        ("owners", {"sessions": [session(owner_state="gone", state="closing")]}, State.OK),
        ("owners", {"threads": [{"thread": "t", "busy": True, "owner_state": "nobody"}]}, State.CRITICAL),
        ("owners", {"threads": [{"thread": "t", "busy": False, "owner_state": "nobody"}]}, State.OK),
        ("daemons", {"sessions": [session(), session(agent_connection="down")]}, State.WARNING),
        ("daemons", {"sessions": [session(agent_connection="down")] * 2}, State.CRITICAL),
        ("daemons", {"sessions": []}, State.OK),
        ("turns", {"sessions": [session(turn="accepted", turn_seconds=90)]}, State.WARNING),
        ("turns", {"sessions": [session(turn="running", turn_seconds=9_000)]}, State.OK),
        ("storage", {"streams": [{"stream": "S", "error": "stream not found"}]}, State.CRITICAL),
        ("storage", {"streams": [stream(bytes=99)]}, State.WARNING),
        ("storage", {"streams": [stream(limit_bytes=None)]}, State.OK),
        ("replicas", {"streams": [stream(offline=["n2"])]}, State.WARNING),
        ("replicas", {"streams": [stream(lag=5_000)]}, State.WARNING),
        ("gateway", {"gateway": None, "gateway_error": "refused"}, State.CRITICAL),
        ("gateway", {"gateway": 2}, State.WARNING),
        ("gateway", {"gateway": None}, State.UNKNOWN),
        ("processes", {"metrics": {"unready": 1}}, State.CRITICAL),
        ("processes", {"metrics": {"tieline_loop_lag_seconds": 1}}, State.WARNING),
        ("processes", {"metrics": {"tieline_log_unconfirmed_seconds": 20}}, State.CRITICAL),
        ("processes", {"scraped": 0}, State.UNKNOWN),
    ],
)
def test_what_is_wrong_is_found(objective: str, wrong: dict[str, Any], verdict: State) -> None:
    (found,) = objectives.judge(facts(**wrong), [objective])

    assert found.state is verdict
    assert bool(found.advice) == (verdict in (State.WARNING, State.CRITICAL))


def test_many_without_owner_are_counted_and_some_named() -> None:
    lost = [session(session=f"s{n}", owner_state="gone") for n in range(5)]
    (found,) = objectives.judge(facts(sessions=lost), ["owners"])

    assert found.text == "5 without one: s0, s1, s2 …"


def test_an_objective_that_there_is_not() -> None:
    with pytest.raises(KeyError):
        objectives.judge(facts(), ["beauty"])
