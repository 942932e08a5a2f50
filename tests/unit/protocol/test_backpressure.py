from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol.backpressure import AgentBacklog, Backlog, Budget, Dropped, WorkspaceBacklog
from tieline_protocol.merge import MERGED_BYTES


def shell(data: str) -> tuple[str, bytes, dict]:
    value = {"type": "shell_output", "data": data}
    return "shell_output", json.dumps(value).encode(), value


def drained(backlog: Backlog) -> list[dict]:
    events = []
    while backlog:
        assert backlog.peek()
        events.append(json.loads(backlog.pop().raw))
    return events


def test_events_come_out_as_they_went_in():
    backlog = Backlog()
    backlog.put("plan", b'{"n":1}', {})
    backlog.say("turn", b'{"n":2}', mark="mine")

    first, second = backlog.pop(), backlog.pop()

    assert (first.raw, first.ours, second.raw, second.mark) == (b'{"n":1}', False, b'{"n":2}', "mine")
    assert not backlog
    assert backlog.bytes == 0


def test_the_agent_is_not_read_while_its_backlog_is_full():
    budget = Budget()
    backlog = AgentBacklog(budget, limit=1_000)
    backlog.put("plan", b"x" * 500, {})
    assert backlog.reading
    backlog.put("plan", b"x" * 400, {})
    assert not backlog.reading
    assert budget.used == backlog.bytes > 1_000

    backlog.put("plan", b"y", {})
    backlog.pop()
    assert not backlog.reading  # 529 and 129 bytes: still above half
    backlog.pop()
    assert backlog.reading

    backlog.clear()
    assert budget.used == 0


def test_all_agents_together_have_a_bound_too():
    budget = Budget(limit=1_000)
    one, other = AgentBacklog(budget), AgentBacklog(budget)
    one.put("plan", b"x" * 900, {})
    assert not one.reading
    other.put("plan", b"x", {})
    assert not other.reading

    other.pop()
    assert other.reading  # it has nothing that could wait

    one.pop()
    assert one.reading


def test_a_workspace_that_is_hardly_behind_is_left_as_it_is():
    backlog = WorkspaceBacklog()
    for n in range(3):
        backlog.put(*shell(str(n)))

    assert [event["data"] for event in drained(backlog)] == ["0", "1", "2"]


def test_neighbouring_output_is_merged_when_it_waits():
    """B79: a flood is merged before anything is dropped."""
    backlog = WorkspaceBacklog(limit=40_000)
    for _ in range(30):
        backlog.put(*shell("x" * 1_000))
    backlog.put("git_status", b'{"type":"git_status"}', {"type": "git_status"})
    backlog.put(*shell("y"))

    events = drained(backlog)

    assert len(events) < 20
    assert "".join(event.get("data", "") for event in events) == "x" * 30_000 + "y"
    assert [event["type"] for event in events[-2:]] == ["git_status", "shell_output"]
    assert backlog.dropped == 0


def test_merged_events_stay_small():
    backlog = WorkspaceBacklog()
    for _ in range(1_000):
        backlog.put(*shell("x" * 4_000))

    assert all(len(event["data"]) <= MERGED_BYTES for event in drained(backlog))


def test_above_the_bound_the_oldest_output_is_dropped_and_a_gap_stands_there():
    """B79: what is dropped is marked; memory stays within its bound."""
    backlog = WorkspaceBacklog(limit=10_000)
    backlog.say("processes", b'{"type":"processes"}')
    backlog.put("git_status", b'{"type":"git_status"}', {"type": "git_status"})
    for n in range(100):
        backlog.put(*shell(f"{n:04}" * 100))
        assert backlog.bytes <= 10_000

    ours, status, gap, *rest = drained(backlog)

    assert ours == {"type": "processes"}
    assert status == {"type": "git_status"}
    assert (gap["type"], gap["reason"], gap["event_type"]) == ("gap", "overflow", "shell_output")
    kept = "".join(event["data"] for event in rest)
    assert kept.endswith("0099" * 100)
    assert gap["events"] == backlog.dropped == 100 - len(kept) // 400
    assert gap["bytes"] > gap["events"] * 400


def test_when_no_output_is_left_the_oldest_of_anything_goes():
    backlog = WorkspaceBacklog(limit=5_000)
    backlog.say("operation", b'{"type":"operation"}')
    for n in range(20):
        type = f"file_{n % 2}"
        backlog.put(type, json.dumps({"type": type, "n": n, "x": "x" * 500}).encode(), {"type": type})

    ours, gap, *rest = drained(backlog)

    assert ours == {"type": "operation"}
    assert gap["type"] == "gap"
    assert "event_type" not in gap  # several types in one gap
    assert rest[-1]["n"] == 19


def test_a_gap_is_never_dropped():
    backlog = WorkspaceBacklog(limit=1_000)
    for n in range(50):
        backlog.put("file", b'{"n":%d,"x":"%b"}' % (n, b"x" * 2_000), {})

    assert backlog.dropped == 49
    assert isinstance(backlog.peek(), Dropped)


@given(
    st.lists(st.tuples(st.sampled_from("sgo"), st.integers(0, 3_000)), max_size=80),
    st.integers(2_000, 20_000),
)
def test_events_and_gaps_together_account_for_everything(steps: list[tuple[str, int]], limit: int):
    backlog = WorkspaceBacklog(limit=limit)
    text = 0
    for kind, size in steps:
        if kind == "s":
            backlog.put(*shell("x" * size))
            text += size
        elif kind == "g":
            backlog.put("git_status", json.dumps({"type": "git_status", "x": "x" * size}).encode(), {})
        else:
            backlog.say("operation", b'{"type":"operation"}')

    events = drained(backlog)
    kept = sum(len(event.get("data", "")) for event in events if event["type"] == "shell_output")
    assert kept <= text
    assert sum(event["events"] for event in events if event["type"] == "gap") == backlog.dropped
    assert sum(event["type"] == "operation" for event in events) == sum(kind == "o" for kind, _ in steps)
    if backlog.dropped == 0:
        assert kept == text
