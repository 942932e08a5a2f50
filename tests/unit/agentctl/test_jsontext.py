import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_agentctl.jsontext import DEEPEST, BadJson, dumps, loads

texts = st.text(st.characters(exclude_categories=[]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_numbers_that_json_does_not_have_are_read_as_null():
    """B21: NaN, Infinity and 1e400 are null, and the rest of the frame is kept."""
    assert loads(b'{"x":NaN,"y":-Infinity,"z":1e400,"w":1.5}') == {"x": None, "y": None, "z": None, "w": 1.5}


def test_numbers_that_json_does_not_have_are_written_as_null():
    """B21"""
    assert dumps({"x": float("nan"), "y": ["\ud83d", float("inf")]}) == b'{"x":null,"y":["\\ud83d",null]}'


def test_a_lone_surrogate_of_the_agent_goes_on_as_its_escape():
    """B20"""
    assert dumps(loads(rb'{"text":"ok \ud83d end"}', keep_surrogates=True)) == rb'{"text":"ok \ud83d end"}'


def test_a_lone_surrogate_of_a_peer_becomes_a_replacement_character():
    """B20"""
    read = loads(rb'{"a\udc97": ["x", "\ud83d!", "\ud83d\ude00", 1, null]}')

    assert read == {"a\ufffd": ["x", "\ufffd!", "😀", 1, None]}


def test_bytes_that_are_not_utf8_are_replaced():
    assert loads(b'["a\xff"]') == ["a\ufffd"]


@pytest.mark.parametrize("depth", [1_025, 2_000, 100_000])
def test_what_is_nested_too_deeply_is_bad_json(depth: int):
    """B22"""
    with pytest.raises(BadJson):
        loads(nested(depth))


def test_moderate_nesting_is_read_and_cut_when_written():
    """B22"""
    value = loads(nested(500))

    written = dumps(value)

    assert written.startswith(b"[" * 200)
    assert b"nested too deeply" in written
    json.loads(written)


def test_nesting_with_something_that_json_does_not_have_has_a_lower_limit():
    """B22: the same answer whatever the interpreter."""
    assert loads(b"[" * DEEPEST + b'NaN,"[{"' + b"]" * DEEPEST)
    with pytest.raises(BadJson, match="too deeply"):
        loads(b'{"a":' * DEEPEST + b"[NaN]" + b"}" * DEEPEST)


def test_rubbish_is_bad_json():
    for rubbish in (b"", b"{", b"[1,]", "nonsense", b"\x00"):
        with pytest.raises(BadJson):
            loads(rubbish)


def test_things_that_json_cannot_say_are_written_as_text():
    assert dumps([{1, 2}.__class__, 2**70, True]) == b"[\"<class 'set'>\",1180591620717411303424,true]"


def test_a_tuple_is_a_list():
    assert dumps({"a": ("\ud83d",), "b": {"c": 1}}) == b'{"a":["\\ud83d"],"b":{"c":1}}'


@given(values)
def test_whatever_is_written_parses_everywhere(value):
    def refuse(name):
        raise AssertionError(name)

    json.loads(dumps(value), parse_constant=refuse)


@given(texts)
def test_text_survives_to_the_character(text: str):
    assert json.loads(dumps(text)) == json.loads(json.dumps(text))


@given(st.binary())
def test_any_bytes_give_a_value_or_bad_json(data: bytes):
    try:
        loads(data)
    except BadJson:
        pass


@given(values)
def test_what_a_peer_sent_can_always_be_encoded(value):
    json.dumps(loads(json.dumps(value)), ensure_ascii=False).encode()
