import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_agentctl import envelope
from tieline_agentctl.envelope import BadFrame, Envelope, RequestFailed, decode

STAMP = "2031-04-05T06:07:08Z"


def test_a_request_is_read():
    stamp = "2031-04-05T06:07:08.123456789Z"
    text = json.dumps(
        {"id": "1", "type": "request", "action": "agent.cancel", "payload": None, "timestamp": stamp}
    )

    assert decode(text) == Envelope("1", "request", "agent.cancel", None)


def test_everything_may_be_absent():
    assert decode("{}") == Envelope("", "", "", None)


@pytest.mark.parametrize("stamp", [STAMP, "2031-04-05T06:07:08.1+02:00", "0001-01-01T00:00:00Z"])
def test_a_proper_timestamp_is_fine(stamp: str):
    assert decode(json.dumps({"id": "1", "timestamp": stamp})).id == "1"


@pytest.mark.parametrize(
    "stamp", ["", "yesterday", 1933135628120, "2031-04-05 06:07:08Z", "2031-13-05T06:07:08Z"]
)
def test_a_malformed_timestamp_spoils_the_frame(stamp: object):
    with pytest.raises(BadFrame):
        decode(json.dumps({"id": "1", "type": "request", "timestamp": stamp}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"x"',
        '{"id":1}',
        '{"type":{}}',
        '{"action":[1]}',
        '{"metadata":{"a":1}}',
        '{"metadata":3}',
    ],
)
def test_what_is_no_envelope_is_a_bad_frame(text: str):
    with pytest.raises(BadFrame):
        decode(text)


def test_metadata_of_strings_is_fine():
    assert decode('{"id":"1","metadata":{"traceparent":"00-1"}}').id == "1"


def test_a_deeply_nested_frame_is_a_bad_frame():
    """B22"""
    with pytest.raises(BadFrame):
        decode('{"payload":' + "[" * 50_000 + "]" * 50_000 + "}")


def test_a_lone_surrogate_in_a_prompt_becomes_valid_text():
    """B20"""
    assert decode(r'{"payload":{"text":"\ud83d"}}').payload == {"text": "\ufffd"}


@given(st.text())
def test_any_text_gives_an_envelope_or_a_bad_frame(text: str):
    try:
        decode(text)
    except BadFrame:
        pass


def test_a_response_repeats_id_and_action():
    asked = Envelope("7", "request", "agent.stderr")

    frame = json.loads(envelope.response(asked, {"lines": []}, STAMP))

    assert frame == {
        "id": "7",
        "type": "response",
        "action": "agent.stderr",
        "payload": {"lines": []},
        "timestamp": STAMP,
    }


def test_an_error_says_code_message_and_details():
    asked = Envelope("7", "request", "x")

    plain = json.loads(envelope.error(asked, RequestFailed("NOT_FOUND", "no"), STAMP))
    detailed = json.loads(envelope.error(asked, RequestFailed("CONFLICT", "no", {"a": 1}), STAMP))

    assert plain["type"] == "error"
    assert plain["payload"] == {"code": "NOT_FOUND", "message": "no"}
    assert detailed["payload"]["details"] == {"a": 1}


def test_a_request_of_ours_has_every_member():
    frame = json.loads(envelope.request("m-1", "mcp.list_workspaces", None, STAMP))

    assert frame == {
        "id": "m-1",
        "type": "request",
        "action": "mcp.list_workspaces",
        "payload": None,
        "timestamp": STAMP,
    }


READERS: dict[str, tuple[Any, ...]] = {
    "text": (envelope.text, "", ["x", ""], [1, True, [], {}]),
    "flag": (envelope.flag, False, [True, False], [1, "true", []]),
    "number": (envelope.number, 0, [0, 2**64 - 1], ["3", -1, 2**64, 1.0, True]),
    "items": (envelope.items, [], [[], [{}]], [{}, "x", [1], [None]]),
    "texts": (envelope.texts, [], [[], ["x"]], [{}, "x", [1]]),
    "strings": (envelope.strings, {}, [{}, {"a": "b"}], [[], "x", {"a": 1}]),
}


@pytest.mark.parametrize("kind", READERS)
def test_a_member_of_the_wrong_type_is_a_bad_request_and_never_coerced(kind: str):
    read, absent, right, wrong = READERS[kind]

    assert read({}, "m") == absent
    assert read({"m": None}, "m") == absent
    for value in right:
        assert read({"m": value}, "m") == value
    for value in wrong:
        with pytest.raises(RequestFailed) as failure:
            read({"m": value}, "m")
        assert failure.value.code == "BAD_REQUEST"


def test_a_payload_is_an_object_or_null():
    assert envelope.fields(None) == {}
    assert envelope.fields({"a": 1}) == {"a": 1}
    with pytest.raises(RequestFailed):
        envelope.fields([])
