"""What the model wrote as arguments: an object, or a sentence about it."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_agent import arguments
from tieline_protocol.errors import Code, Refused


@pytest.mark.parametrize("text", ["", "  \n", "{}", "null", '"{}"'])
def test_nothing_means_no_arguments(text: str):
    """B54: (a) an empty text runs with {}."""
    assert arguments.parse(text) == {}


def test_an_object_is_taken_as_it_is():
    assert arguments.parse('{"city": "Paris", "n": 0}') == {"city": "Paris", "n": 0}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"city":', "not valid JSON"),
        ("not json", "not valid JSON"),
        ("[1]", "an array"),
        ('"str"', "not valid JSON"),
        ("1", "a number"),
        ("1.5", "a number"),
        ("true", "true or false"),
        ('{"x": NaN}', "not valid JSON"),
        ("[" * 5_000, "not valid JSON"),
    ],
)
def test_anything_else_is_a_sentence_that_names_the_problem(text: str, says: str):
    """B54: (d) (e) (f), NaN and endless nesting: no function runs, the model can read why."""
    with pytest.raises(Refused, match=says) as caught:
        arguments.parse(text)

    assert caught.value.code is Code.INVALID_ARGUMENTS
    assert len(caught.value.message) < 500


@pytest.mark.parametrize("text", ["", '{"city":'])
def test_what_the_limit_of_tokens_cut_off_says_so(text: str):
    """B54: (c) an answer that ended with finish_reason length."""
    with pytest.raises(Refused, match="cut off"):
        arguments.parse(text, cut=True)


def test_a_whole_object_before_the_cut_counts():
    assert arguments.parse('{"a": 1}', cut=True) == {"a": 1}


def test_text_that_was_encoded_twice_is_unwrapped_once():
    """B55: a JSON string of the JSON text."""
    twice = json.dumps(json.dumps({"city": "Paris"}))

    assert arguments.parse(twice) == {"city": "Paris"}
    with pytest.raises(Refused, match="a string"):
        arguments.parse(json.dumps(twice))


def test_half_an_emoji_becomes_the_replacement_character():
    """B20: the other parts: arguments."""
    assert arguments.parse(r'{"a": "\ud83d"}') == {"a": "\ufffd"}


def test_what_stands_in_the_history_is_always_an_object():
    assert arguments.as_history('{"a": 1}') == '{"a": 1}'
    assert arguments.as_history('"{\\"a\\": 1}"') == '{"a":1}'
    assert arguments.as_history('{"city":') == "{}"
    assert arguments.as_history("") == "{}"


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_nothing_but_an_object_ever_comes_out(text: str):
    with contextlib.suppress(Refused):
        assert isinstance(arguments.parse(text), dict)
    assert isinstance(json.loads(arguments.as_history(text)), dict)
