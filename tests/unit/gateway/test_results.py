"""What an owner says of a call: read by layout or by parsing, with one rule for what may pass."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tieline_gateway import results
from tieline_gateway.results import Told
from tieline_protocol import frontend
from tieline_protocol.errors import BadMessage

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


def said(text: str) -> Told:
    """What the gateway understands, by whichever way."""
    quick = results.quickly(text)
    slow = results.told(frontend.parse(text), text)
    assert quick is None or quick == slow
    return slow


def error(told: Told) -> str:
    assert told.verb == "error"
    return str(orjson.loads(told.body)["error"])


def frame(payload: str, head: str = '"type":"notification","action":"remote-call-result"') -> str:
    return f'{{{head},"payload":{payload}}}'


@given(VALUES, st.sampled_from([",", ", ", " ,\n "]), st.booleans())
def test_a_result_passes_as_the_text_that_it_is(value: Any, comma: str, ascii: bool) -> None:
    """B62"""
    raw = json.dumps(value, ensure_ascii=ascii, separators=(comma, ":"))

    told = said(frame(f'{{"requestId":"r-1","result":{raw}}}'))

    assert (told.request_id, told.verb, told.body, told.id) == ("r-1", "result", raw.encode(), None)


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"notification","action":"remote-call-result","payload":{"requestId":"r-1","result":1.50}}',
        '{"action":"remote-call-result","id":"7","payload":{"requestId":"r-1","result":1.50}}',
        '{ "id" : 7, "type" : "request", "action" : "remote-call-result",\n "payload"'
        ' : { "requestId" : "r-1", "result":1.50}}',
    ],
)
def test_the_usual_layouts_need_no_parsing_of_the_frame(text: str) -> None:
    told = results.quickly(text)

    assert told is not None
    assert told.body == b"1.50"


@pytest.mark.parametrize(
    "text",
    [
        frame('{"result":1.50,"requestId":"r-1"}'),
        frame('{"requestId":"r-1","result":1.50,"error":null}'),
        frame('{"requestId":"r-1","result":2,"result":1.50}'),
        frame('{"requestId":"r-1","result":1.50} '),
        frame('{"requestId":"r-1","note":"}}","result": 1.50 }'),
        '{"payload":{"requestId":"r-1","result":1.50},"action":"remote-call-result","type":"notification"}',
        '{"payload":{"result":2},' + frame('{"requestId":"r-1","result":1.50}')[1:],
        '{"type":"notification","action":"remote-call-result","metadata":{},"payload":{"requestId":"\\u0072-1","result":1.50}}',
    ],
)
def test_every_other_layout_means_the_same(text: str) -> None:
    told = said(text)

    assert (told.request_id, told.body.strip()) == ("r-1", b"1.50")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "}}",
        '{"type":"request","action":"remote-call-result","payload":{"requestId":"r-1","result":1}}',
        '{"type":"notification","action":"remote-call-result","id":"1","payload":{"requestId":"r-1","result":1}}',
        '{"type":"response","id":"1","action":"remote-call-result","payload":{"requestId":"r-1","result":1}}',
        '{"type":"notification","action":"remote-call","payload":{"requestId":"r-1","result":1}}',
        frame('{"requestId":"r-1","result":}'),
        frame('{"requestId":"r-1","result":1}},"x":{"y":{}'),
    ],
)
def test_what_is_no_result_is_not_taken_for_one(text: str) -> None:
    """B15"""
    assert results.quickly(text) is None


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ('{"requestId":"r-1","result":"ok \\ud83d end"}', "surrogate"),
        ('{"requestId":"r-1","result":' + "[" * 600 + "]" * 600 + "}", "nested too deeply"),
        ('{"requestId":"r-1","result":' + "[" * 1000 + "]" * 1000 + "}", "nested too deeply"),
        ('{"requestId":"r-1","result":' + '{"a":' * 300 + "1" + "}" * 300 + "}", "nested too deeply"),
    ],
)
def test_what_others_could_not_read_ends_the_call_with_an_error(payload: str, reason: str) -> None:
    """B20 B22"""
    assert reason in error(said(frame(payload)))


def test_many_brackets_are_no_nesting() -> None:
    raw = "[" + ",".join(["[]"] * 2_000) + "]"

    assert said(frame(f'{{"requestId":"r-1","result":{raw}}}')).body == raw.encode()


@pytest.mark.parametrize(
    ("payload", "said_error", "code"),
    [
        ({"error": "no such tab"}, "no such tab", "internal"),
        ({"error": "", "result": 1}, "", "internal"),
        ({"error": "x", "code": "busy", "result": 1}, "x", "busy"),
        ({"error": {"a": 1}, "code": 7}, '{"a":1}', "internal"),
        ({}, "neither", "internal"),
        ({"error": None}, "neither", "internal"),
    ],
)
def test_an_error_wins_and_neither_is_one_too(payload: dict[str, Any], said_error: str, code: str) -> None:
    """B62"""
    told = said(frame(orjson.dumps({"requestId": "r-1", **payload}).decode()))

    assert said_error in error(told)
    assert orjson.loads(told.body)["code"] == code


def test_a_long_error_is_cut() -> None:
    assert len(error(said(frame(orjson.dumps({"requestId": "r", "error": "x" * 50_000}).decode())))) == 10_000


@pytest.mark.parametrize("id", [7, {}, "", None, "x" * 10_000, ["r-1"]])
def test_a_requestId_that_is_none_is_named(id: Any) -> None:
    """B15"""
    text = frame(orjson.dumps({"requestId": id, "result": 1}).decode())

    with pytest.raises(BadMessage, match="requestId"):
        said(text)


@pytest.mark.parametrize(
    "value", ["NaN", '{"x":NaN,"y":-Infinity}', "1e400", "[" * 5_000 + "]" * 5_000, '"cut']
)
def test_a_frame_that_is_no_json_ends_the_calls_that_it_shows(value: str) -> None:
    """B21 B22"""
    [told] = results.salvaged(frame(f'{{"requestId":"r-1","result":{value}}}'), "not valid JSON")

    assert told.request_id == "r-1"
    assert "not valid JSON" in error(told)


def test_a_call_that_is_only_quoted_is_not_shown() -> None:
    inner = orjson.dumps(frame('{"requestId":"r-2"}')).decode()

    assert results.salvaged(f'{{"action":"agent.prompt","payload":{{"text":{inner}', "x") == []
    assert [t.request_id for t in results.salvaged(frame(f'{{"requestId":"r-1","result":{inner}'), "x")] == [
        "r-1"
    ]


@example("0\r")
@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_read_or_refused(text: str) -> None:
    """B15"""
    for whole in (text, frame(text), frame(f'{{"requestId":"r-1","result":{text}}}')):
        results.salvaged(whole, "x")
        try:
            said(whole)
        except BadMessage:
            assert results.quickly(whole) is None
