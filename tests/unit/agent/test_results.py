"""How a call ended, and what the model reads of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_agent import results
from tieline_protocol.errors import Code
from tieline_protocol.remotes import RESULT_BYTES


@pytest.mark.parametrize("value", [None, "", [], {}, 0, False, 0.0])
def test_an_empty_result_is_a_result(value: object):
    """B62: falsy results read as their JSON text, never as nothing."""
    text = results.success(value).text(1_000)

    assert text
    assert json.loads(text) == value


def test_text_goes_to_the_model_as_it_is_and_the_rest_as_json():
    assert results.success("sunny\n").text(100) == "sunny\n"
    assert results.success({"a": [1, "é"]}).text(100) == '{"a":[1,"é"]}'


def test_a_failure_names_its_code():
    assert results.failure(Code.TIMEOUT, "no result within 30 s").text(100) == (
        "error: timeout: no result within 30 s"
    )


def test_an_error_wins_over_a_result_and_neither_is_an_error():
    """B62: a frame with both, a frame with neither."""
    assert results.of({"result": 1, "error": "no"}).text(100) == "error: internal: no"
    assert results.of({}).text(100) == "error: internal: neither a result nor an error came"
    assert results.of({"result": None, "error": None}).text(100) == "null"
    assert results.of({"error": ""}).text(100) == "error: internal: no reason given"
    assert results.of({"error": {"why": 1}, "code": "busy"}).text(100) == 'error: busy: {"why":1}'
    assert results.of({"error": "x", "code": "odd"}).code is Code.INTERNAL


def test_a_long_result_is_cut_for_the_model_and_says_so():
    assert results.success("x" * 1_000).text(10) == "xxxxxxxxxx… (cut: 1000 characters in all)"


def test_a_result_that_json_cannot_say_is_an_error():
    assert results.success({1, 2}).code is Code.INTERNAL
    assert results.success("x" * (RESULT_BYTES + 1)).code is Code.TOO_LARGE


def test_what_is_no_number_in_json_becomes_null():
    """B21: a tool result with Python's NaN."""
    assert results.success({"x": float("nan"), "y": float("inf")}).text(100) == '{"x":null,"y":null}'


def test_half_an_emoji_in_a_result_does_not_reach_the_model():
    """B20: the other parts: results."""
    assert results.success("ok \ud83d end").text(100) == "ok \ufffd end"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(json_values)
def test_every_json_value_reads_as_itself(value: object):
    text = results.success(value).text(1_000_000)

    assert text == value if isinstance(value, str) and value else json.loads(text) == value
