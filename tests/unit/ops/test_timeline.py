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
    ({"type": "shell_output", "data": "\x1b[?2004h\x1b]0;title\x07$ ls\r\n"}, r"shell_output  '$ ls\n'"),
    ({"type": "shell_exit"}, "shell_exit  code 0"),
    ({"type": "questions", "open": [{}]}, "questions  1 open"),
    (
        {"type": "agent_capabilities", "supports_image": True, "supports_audio": False},
        "agent_capabilities  image",
    ),
    (
        {"type": "mcp_attachment", "mcp_attachment": {"server_name": "kandev", "kind": "delivered"}},
        "mcp_attachment  kandev delivered",
    ),
    ({"type": "message", "role": "user", "content": "hi"}, "message  user: 'hi'"),
    (
        {"type": "tool_call", "remote": "browser", "function": "title", "arguments": {}},
        "tool_call  browser.title {}",
    ),
    ({"type": "tool_result", "result": 0}, "tool_result  0"),
    ({"type": "tool_result", "error": "no", "code": "internal"}, "tool_result  error: internal: no"),
    ({"type": "something_new"}, "something_new"),
    ({}, "?"),
]


@pytest.mark.parametrize(("event", "line"), EVENTS)
def test_an_event_is_one_readable_line(event: dict[str, Any], line: str) -> None:
    kind, _, words = line.partition("  ")

    assert timeline.line(event) == f"{kind:<18}  {words}".rstrip()


def test_a_long_line_is_cut() -> None:
    assert len(timeline.line({"type": "shell_output", "data": "x" * 500})) == 78


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

    assert len(line) <= 78
    assert len(line.splitlines()) == 1


def told(*events: tuple[str, dict[str, Any]]) -> list[tuple[str, str]]:
    said: list[tuple[str, str]] = []
    telling = timeline.Telling(lambda name, text: said.append((name, text)))
    for log, event in events:
        telling.event(log, event)
    telling.say("demo", "the end")
    return said


def test_pieces_of_one_text_are_one_line() -> None:
    said = told(
        ("agent", {"type": "message_chunk", "text": "a "}),
        ("agent", {"type": "message_chunk", "text": "b"}),
        ("agent", {"type": "turn", "generation": 1, "state": "ended"}),
        ("agent", {"type": "message_chunk", "text": "c"}),
    )

    assert [" ".join(text.split()) for _, text in said] == [
        "message_chunk 'a b'",
        "turn 1 ended",
        "message_chunk 'c'",
        "the end",
    ]


def test_an_escape_sequence_in_two_pieces_is_left_out_too() -> None:
    said = told(
        ("workspace", {"type": "shell_output", "data": "$ \x1b[?20"}),
        ("workspace", {"type": "shell_output", "data": "04lls"}),
    )

    assert said[0] == ("workspace", f"{'shell_output':<18}  '$ ls'")


def test_texts_of_two_logs_or_two_speakers_are_two_lines() -> None:
    said = told(
        ("agent", {"type": "message_chunk", "text": "a"}),
        ("agent", {"type": "message_chunk", "text": "b", "role": "user"}),
        ("workspace", {"type": "shell_output", "data": "c"}),
    )

    assert len(said) == 4


@given(st.lists(st.text(max_size=5), min_size=1))
def test_no_piece_is_lost(pieces: list[str]) -> None:
    said = told(*(("agent", {"type": "delta", "text": piece}) for piece in pieces))

    assert said[0][1] == timeline.line({"type": "delta", "text": "".join(pieces)})
