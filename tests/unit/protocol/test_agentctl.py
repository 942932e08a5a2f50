from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol import agentctl
from tieline_protocol.agentctl import Kind, peek
from tieline_protocol.errors import BadMessage, Code, Refused


def test_a_frame_is_checked_and_tells_its_type():
    frame = peek(b' {"type":"plan","plan_entries":null} ')

    assert frame.type == "plan"
    assert frame.value["plan_entries"] is None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"{}",
        b'{"type":null}',
        b'{"type":""}',
        b'{"type":"x","n":NaN}',
        b'{"type":"x","n":-Infinity}',
        b'{"type":"x"} {}',
        b'{"type":"x","s":"\xff\xfe"}',
    ],
)
def test_what_is_no_event_is_refused(raw: bytes):
    """B21: NaN and Infinity are not JSON. B19: nor is what is not UTF-8."""
    with pytest.raises(BadMessage):
        peek(raw)


@pytest.mark.parametrize("depth", [500, 1_000, 1_021])
def test_deep_events_pass_as_far_as_viewers_can_read_them(depth: int):
    """B22."""
    raw = b'{"type":"x","v":%b%b}' % (b"[" * depth, b"]" * depth)

    assert peek(raw).type == "x"
    orjson.loads(b'{"payload":{"event":%b}}' % raw)


@pytest.mark.parametrize("depth", [1_022, 1_023, 2_000, 100_000])
def test_deeper_events_are_refused_whatever_the_python(depth: int):
    """B22."""
    with pytest.raises(BadMessage, match="deep"):
        peek(b'{"type":"x","v":%b%b}' % (b"[" * depth, b"]" * depth))


def test_brackets_in_a_long_text_are_no_nesting():
    raw = orjson.dumps({"type": "message_chunk", "text": "[{" * 5_000})

    assert peek(raw).value["text"] == "[{" * 5_000


def test_a_lone_surrogate_that_is_escaped_passes():
    """B20."""
    assert peek(rb'{"type":"message_chunk","text":"\udc97"}').value["text"] == "�"


@given(st.binary())
def test_any_bytes_are_a_frame_or_refused(raw: bytes):
    try:
        frame = peek(raw)
    except BadMessage:
        return
    assert json.loads(raw)["type"] == frame.type


def test_utf8_is_told_from_other_bytes():
    assert agentctl.is_utf8("ü😀".encode())
    assert not agentctl.is_utf8(b"\xff\xfe")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"type": "message_chunk"}, Kind.EVENT),
        ({"type": "error", "error": "529"}, Kind.EVENT),
        ({"type": "error", "id": "x", "payload": None}, Kind.REPLY),
        ({"type": "error", "action": "agent.prompt"}, Kind.REPLY),
        ({"type": "response", "id": "x"}, Kind.REPLY),
        ({"type": "response"}, Kind.REPLY),
        ({"type": "request", "id": "x", "action": "mcp.list_tasks"}, Kind.REQUEST),
        ({"type": "request"}, Kind.EVENT),
        ({"type": "notification", "action": "x"}, Kind.NEITHER),
        ({"type": "branch_switch2"}, Kind.EVENT),
    ],
)
def test_the_families_of_frames_are_told_apart(value: dict, kind: Kind):
    """B86: an error with an id is never an event, and an event of type error is never a reply."""
    assert agentctl.kind(peek(orjson.dumps(value))) is kind


def test_envelopes_have_no_timestamp_that_could_be_malformed():
    assert orjson.loads(agentctl.request("1", "agent.cancel", None)) == {
        "id": "1",
        "type": "request",
        "action": "agent.cancel",
        "payload": None,
    }
    assert orjson.loads(agentctl.response("1", "mcp.x", {"a": 1}))["payload"] == {"a": 1}
    assert orjson.loads(agentctl.error("1", "mcp.x", "UNKNOWN_ACTION", "no"))["payload"] == {
        "code": "UNKNOWN_ACTION",
        "message": "no",
    }


def test_workspace_frames_are_flat_with_a_number_for_the_time():
    assert orjson.loads(agentctl.shell_input("ls\r", 5)) == {
        "type": "shell_input",
        "timestamp": 5,
        "data": "ls\r",
    }
    assert orjson.loads(agentctl.shell_resize(100, 30, 5)) == {
        "type": "shell_resize",
        "timestamp": 5,
        "cols": 100,
        "rows": 30,
    }
    assert orjson.loads(agentctl.ping(5)) == {"type": "ping", "timestamp": 5}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("BAD_REQUEST", Code.BAD_REQUEST),
        ("VALIDATION_ERROR", Code.BAD_REQUEST),
        ("NOT_FOUND", Code.NOT_FOUND),
        ("CONFLICT", Code.CONFLICT),
        ("UNKNOWN_ACTION", Code.UNKNOWN_ACTION),
        ("INTERNAL_ERROR", Code.INTERNAL),
        ("UNAUTHORIZED", Code.INTERNAL),
        ("ZIG", Code.INTERNAL),
    ],
)
def test_the_daemons_codes_map_to_ours(code: str, expected: Code):
    refused = agentctl.refused({"code": code, "message": "why"})

    assert (refused.code, refused.message) == (expected, "why")
    assert refused.details == {"agentctl": {"code": code, "message": "why"}}


@pytest.mark.parametrize("payload", [None, "", 5, {}, {"code": 5, "message": None}, {"message": ""}])
def test_an_error_without_details_is_readable(payload: object):
    """B86."""
    refused = agentctl.refused(payload)

    assert refused.code is Code.INTERNAL
    assert refused.message == "the daemon refused without a reason"


def test_an_error_that_is_only_text_keeps_it():
    assert agentctl.refused("no way").message == "no way"


def test_a_reply_says_yes_or_raises():
    assert agentctl.payload({"type": "response", "payload": {"success": True}}) == {"success": True}
    assert agentctl.payload({"type": "response", "payload": None}) == {}
    with pytest.raises(Refused):
        agentctl.payload({"type": "error", "payload": None})
