import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline import frames
from tieline.frames import Frame

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from(["request", "response", "error", "notification"]),
    st.text(),
    st.dictionaries(st.text(), JSON, max_size=3),
    st.none() | st.text(),
    st.none() | st.text(),
)
def test_what_was_encoded_is_decoded(
    kind: Any, action: str, payload: dict[str, Any], id: str | None, traceparent: str | None
) -> None:
    frame = Frame(kind, action, payload, id, traceparent)

    again = frames.decode(frames.encode(frame))

    assert again == frame


@given(st.binary())
def test_any_bytes_are_a_frame_or_nothing(data: bytes) -> None:
    assert frames.decode(data) is None or isinstance(frames.decode(data), Frame)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"1",
        b'{"type":"other"}',
        b'{"action":5}',
        b'{"id":5,"action":"x"}',
        b'"x"',
        b"[" * 9000,
    ],
)
def test_what_is_no_frame_is_nothing(text: bytes) -> None:
    assert frames.decode(text) is None


def test_a_frame_without_a_type_is_a_request_and_a_payload_that_is_no_object_is_empty() -> None:
    assert frames.decode(b'{"action":"a","id":"1","payload":3}') == Frame("request", "a", {}, "1")
    assert frames.decode(b'{"type":"error","id":"1"}') == Frame("error", "", {}, "1")


def test_lone_surrogates_survive_as_escapes() -> None:
    text = frames.encode(Frame("request", "shell.input", {"data": "\ud83d"}, "1"))

    assert b"\\ud83d" in text
    assert frames.decode(text) == Frame("request", "shell.input", {"data": "\ud83d"}, "1")


def test_a_code_that_is_not_known_counts_as_internal() -> None:
    known = frames.error({"code": "conflict", "message": "busy", "details": {"a": 1}})
    unknown = frames.error({"code": "new", "message": "?", "details": 3})

    assert (known.code, known.message, known.details) == ("conflict", "busy", {"a": 1})
    assert (unknown.code, unknown.details) == ("internal", None)


def test_a_close_reason_says_when_to_come_back() -> None:
    soon = frames.disconnected(4001, json.dumps({"retry_after_ms": 250}))

    assert (soon.come_back, soon.retry_after_ms) == (True, 250)
    assert frames.disconnected(1006, "gone").retry_after_ms is None
    assert frames.disconnected(4001, '{"retry_after_ms":"x"}').retry_after_ms is None
    assert frames.disconnected(4001, "[]").retry_after_ms is None
