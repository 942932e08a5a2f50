"""Frames: any text is one, or a clear error."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol import batch, frontend
from tieline_protocol.batch import Batch
from tieline_protocol.errors import Code, Refused
from tieline_protocol.frontend import BadFrame, Frame

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def text(frame: bytes) -> dict[str, Any]:
    [only] = batch.texts(Batch(1, 1, 1, 0, frame))
    value: dict[str, Any] = orjson.loads(only)
    return value


def test_a_frame_without_a_type_is_a_request() -> None:
    assert frontend.parse('{"id":"1","action":"auth"}') == Frame("request", "1", "auth", {})


def test_a_frame_with_everything() -> None:
    frame = frontend.parse(
        orjson.dumps(
            {
                "type": "notification",
                "action": "x",
                "payload": {"a": [1]},
                "metadata": {"traceparent": TRACE},
                "unknown": 1,
            }
        )
    )

    assert frame == Frame("notification", None, "x", {"a": [1]}, TRACE)


@pytest.mark.parametrize("metadata", [None, 7, [], {}, {"traceparent": 7}, {"traceparent": "x"}])
def test_a_trace_that_is_none_is_left_out(metadata: object) -> None:
    raw = orjson.dumps({"id": "1", "action": "x", "metadata": metadata})

    assert frontend.parse(raw).traceparent is None


@pytest.mark.parametrize(
    ("raw", "id", "action", "said"),
    [
        ("", None, None, "JSON"),
        ("[]", None, None, "object"),
        ("{}", None, None, "action"),
        ('{"id":"1"}', "1", None, "action"),
        ('{"id":1,"action":7}', 1, None, "action"),
        ('{"id":"1","action":"x","type":"y"}', "1", "x", "type"),
        ('{"id":"1","action":"x","type":[]}', "1", "x", "type"),
        ('{"action":"x"}', None, "x", "id"),
        ('{"id":null,"action":"x"}', None, "x", "id"),
        ('{"id":"","action":"x"}', None, "x", "id"),
        ('{"id":true,"action":"x"}', None, "x", "id"),
        ('{"id":1.5,"action":"x"}', None, "x", "id"),
        ('{"id":"1","action":"x","payload":[]}', "1", "x", "payload"),
        ('{"id":"' + "x" * 257 + '","action":"x"}', None, "x", "id"),
        ('{"id":"1","action":"' + "x" * 129 + '"}', "1", None, "action"),
    ],
)
def test_a_frame_that_cannot_be_understood_says_what_and_keeps_its_id(
    raw: str, id: object, action: object, said: str
) -> None:
    """B15"""
    with pytest.raises(BadFrame, match=said) as bad:
        frontend.parse(raw)

    assert (bad.value.id, bad.value.action) == (id, action)
    assert bad.value.code is Code.BAD_REQUEST


@given(
    st.one_of(
        st.text(), st.binary(), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)
    )
)
def test_any_bytes_are_a_frame_or_a_bad_one(raw: str | bytes) -> None:
    """B15 B19 B20 B21 B22"""
    try:
        frontend.parse(raw)
    except BadFrame:
        pass


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5)), st.text(min_size=1, max_size=20))
def test_answers_are_frames_that_parse(payload: dict[str, str], id: str) -> None:
    """B20"""
    answer = text(frontend.response(id, "x.y", payload))
    refusal = text(frontend.error(id, None, Refused(Code.BUSY, id)))
    told = text(frontend.notification("changed", payload))

    assert answer == {"type": "response", "id": id, "action": "x.y", "payload": payload}
    assert refusal == {
        "type": "error",
        "id": id,
        "action": None,
        "payload": {"code": "busy", "message": id},
    }
    assert told == {"type": "notification", "action": "changed", "payload": payload}


def test_an_answers_payload_is_spliced_in_byte_for_byte() -> None:
    body = b'{ "a":"\\ud83d","n":1.50 }'

    [only] = batch.texts(Batch(1, 1, 1, 0, frontend.response(7, "x", body)))

    assert only == b'{"type":"response","id":7,"action":"x","payload":' + body + b"}"


def test_details_of_an_error_come_along() -> None:
    refusal = Refused(Code.CONFLICT, "no", details={"daemon": "CONFLICT"})

    assert text(frontend.error("1", "x", refusal))["payload"]["details"] == {"daemon": "CONFLICT"}
