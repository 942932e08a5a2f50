"""What a chunk of a streamed answer says."""

from __future__ import annotations

from typing import Any

import pytest
from tieline_agent import chunks
from tieline_agent.assembly import CallDelta, ReasoningDelta, TextDelta, Usage


def chunk(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def test_text_and_thoughts_are_pieces_of_the_answer() -> None:
    told = chunk(content="so", refusal="no", reasoning_content="hm")

    assert list(chunks.pieces(told)) == [ReasoningDelta("hm"), TextDelta("so"), TextDelta("no")]


def test_a_call_is_told_as_far_as_it_goes() -> None:
    whole = {"index": 1, "id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}

    assert list(chunks.pieces(chunk(tool_calls=[whole, {"index": "x"}]))) == [
        CallDelta(1, "c", "f", '{"a":1}'),
        CallDelta(None, "", None, None),
    ]


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"choices": []},
        {"choices": None},
        {"choices": [{}]},
        {"choices": [{"delta": None, "finish_reason": None}], "usage": None},
        chunk(content="", tool_calls=None, reasoning=7),
    ],
)
def test_what_is_left_out_says_nothing(told: dict[str, Any]) -> None:
    assert list(chunks.pieces(told)) == []
    assert chunks.finish_reason(told) is None
    assert chunks.usage(told) is None


@pytest.mark.parametrize("told", [7, [], "x", {"choices": [7]}, {"choices": [{"delta": "x"}]}])
def test_what_is_no_chunk_is_an_error(told: Any) -> None:
    with pytest.raises((TypeError, AttributeError)):
        list(chunks.pieces(told))


def test_the_end_brings_its_reason_and_the_count_of_tokens() -> None:
    assert chunks.finish_reason({"choices": [{"delta": {}, "finish_reason": "stop"}]}) == "stop"
    assert chunks.usage({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": None}}) == Usage(
        3, 0
    )
