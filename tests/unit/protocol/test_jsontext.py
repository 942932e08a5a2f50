"""JSON at the edges."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol import jsontext
from tieline_protocol.errors import BadMessage

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def fail(constant):
    raise AssertionError(constant)


@given(VALUES)
def test_what_we_write_every_parser_reads(value):
    written = jsontext.dumps(value)

    assert jsontext.loads(written) == value
    json.loads(written, parse_constant=fail)


@given(st.one_of(st.binary(), st.text()))
def test_any_bytes_give_a_value_or_bad_message(raw):
    try:
        value = jsontext.loads(raw)
    except BadMessage:
        return
    assert jsontext.loads(jsontext.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'"ok \\ud83d end"', "ok � end"),
        (b'"\\udc97"', "�"),
        (b'"\\uDE00\\uD83D"', "��"),
        (b'"\\ud83d\\ud83d\\ude00"', "�😀"),
        (b'"\\\\ud83d \\ud83d"', "\\ud83d �"),
        (b'{"\\ud83d": 1}', {"�": 1}),
        (b'"\\ud83d\\ude00"', "😀"),
        ('"\\ud83d"', "�"),
    ],
)
def test_half_an_emoji_is_read_as_a_replacement_character(text, value):
    """B20: and a whole one, or a backslash before `ud83d`, is left alone."""
    assert jsontext.loads(text) == value


def test_half_an_emoji_in_broken_json_is_still_broken_json():
    """B20"""
    with pytest.raises(BadMessage):
        jsontext.loads(b'{"a": "\\ud83d"')


@given(st.text(st.characters(), max_size=8), st.integers(0xD800, 0xDFFF))
def test_half_an_emoji_never_leaves_us(text, half):
    """B20: `.encode()`, orjson and WebSocket libraries fail on it, and with it the whole connection."""
    written = jsontext.dumps({text + chr(half): [(text, chr(half) + text)]})

    assert b"\\ud" not in written.lower().replace(b"\\\\", b"")
    json.loads(written.decode())


def test_the_two_halves_of_an_emoji_are_joined():
    """B20"""
    assert jsontext.dumps("\ud83d\ude00") == '"😀"'.encode()


@pytest.mark.parametrize(
    "text", [b"NaN", b'{"x":-Infinity}', b"[1e400]", b"[Infinity]", b'{"context_efficiency": NaN}']
)
def test_what_is_no_json_number_is_refused(text):
    """B21"""
    with pytest.raises(BadMessage):
        jsontext.loads(text)


def test_not_a_number_leaves_us_as_null():
    """B21"""
    assert jsontext.dumps({"x": float("nan"), "y": [float("-inf")]}) == b'{"x":null,"y":[null]}'


@pytest.mark.parametrize(("open", "close"), [("[", "]"), ('{"a":', "}")])
@pytest.mark.parametrize(("depth", "read"), [(500, True), (1_000, True), (2_000, False), (100_000, False)])
def test_depth_has_the_same_answer_on_every_python(open, close, depth, read):
    """B22"""
    text = '{"result":' + open * (depth - 1) + "0" + close * (depth - 1) + "}"
    if read:
        jsontext.loads(text)
    else:
        with pytest.raises(BadMessage, match="nested too deeply"):
            jsontext.loads(text)


@pytest.mark.parametrize("depth", [255, 500, 1_000, 2_000, 100_000])
def test_what_is_too_deep_to_be_written_is_refused_not_a_crash(depth):
    """B22"""
    value: list = []
    for _ in range(depth):
        value = [value]

    with pytest.raises(BadMessage, match="nested too deeply"):
        jsontext.dumps({"result": value})
    while value:
        value = value.pop()  # freeing it in one go would recurse as deep


@pytest.mark.parametrize("value", [{1, 2}, {"a": 2**70}, {1: 2}, b"bytes", object()])
def test_what_json_cannot_say_is_refused(value):
    with pytest.raises(BadMessage, match="cannot be written as JSON"):
        jsontext.dumps(value)
