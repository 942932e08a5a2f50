from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_ops import timeline

EVENTS = [
    ({"type": "message_chunk", "text": "a\n  b"}, r"message_chunk  'a\n  b'"),
    ({"type": "turn", "generation": 2, "state": "ended", "reason": "end_turn"}, "turn  2 ended end_turn"),
    (
        {
            "type": "permission_request",
            "permission_title": "Run",
            "permission_options": [{"option_id": "allow"}],
        },
        "permission_request  Run [allow]",
    ),
    ({"type": "tool_call", "tool_title": "Read a", "tool_status": "pending"}, "tool_call  Read a pending"),
    ({"type": "tool_update", "tool_call_id": "t1", "tool_status": "complete"}, "tool_update  t1 complete"),
    ({"type": "plan", "plan_entries": [{"description": "a"}, {"description": "b"}]}, "plan  a | b"),
    ({"type": "complete", "data": {"stop_reason": "end_turn"}}, "complete  end_turn"),
    (
        {"type": "git_status", "git_status": {"branch": "main", "untracked": ["x"]}},
        "git_status  on main: untracked x",
    ),
    ({"type": "git_status", "git_status": {"branch": "main"}}, "git_status  on main: clean"),
    (
        {"type": "git_commit", "git_commit": {"commit_sha": "0123456789", "message": "m"}},
        "git_commit  01234567 m",
    ),
    ({"type": "file_change", "file_change": {"operation": "create", "path": "x"}}, "file_change  create x"),
    ({"type": "connection", "stream": "agent", "state": "up"}, "connection  agent up"),
    ({"type": "epoch", "clean": False}, "epoch  a new owner, not clean"),
    ({"type": "gap", "reason": "overflow", "events": 3}, "gap  overflow: 3 events are missing"),
    ({"type": "something_new"}, "something_new"),
    ({}, "?"),
]


@pytest.mark.parametrize(("event", "line"), EVENTS)
def test_an_event_is_one_readable_line(event: dict[str, Any], line: str) -> None:
    assert timeline.line(event) == line


def test_a_long_line_is_cut() -> None:
    assert len(timeline.line({"type": "shell_output", "data": "x" * 500})) == 96


NAMES = [
    "message_chunk",
    "reasoning",
    "permissions",
    "shell_output",
    "shell_exit",
    "session",
    "git_status",
    "turn",
]


@given(st.sampled_from(NAMES), st.text(), st.none() | st.text() | st.dictionaries(st.text(), st.text()))
def test_whatever_an_event_holds_it_is_one_line(kind: str, text: str, inner: Any) -> None:
    line = timeline.line({"type": kind, "text": text, "data": text, kind: inner, "reason": text})

    assert len(line) <= 96
    assert len(line.splitlines()) == 1
