import json
from typing import Any

import pytest
from tieline_agentctl.mcp_results import failed, invoked, pretty


def text(result: dict[str, Any]) -> str:
    [block] = result["content"]
    assert block["type"] == "text"
    said: str = block["text"]
    return said


def test_a_reply_becomes_a_result():
    reply = {"text": "3", "structured_content": {"sum": 3}, "is_error": False}

    assert invoked(reply) == {
        "content": [{"type": "text", "text": "3"}],
        "structuredContent": {"sum": 3},
        "isError": False,
    }


def test_a_tool_that_failed_is_a_result_too():
    assert invoked({"text": "no such page", "is_error": True}) == {
        "content": [{"type": "text", "text": "no such page"}],
        "isError": True,
    }


@pytest.mark.parametrize("value", [0, False, [], "", [1], "a"])
def test_a_structured_value_that_mcp_does_not_know_is_told_as_text(value: Any):
    result = invoked({"structured_content": value})

    assert json.loads(text(result)) == value
    assert "structuredContent" not in result


def test_an_empty_object_stays_one():
    assert invoked({"text": "", "structured_content": {}})["structuredContent"] == {}


@pytest.mark.parametrize("reply", [None, [1, 2], "text", 0])
def test_any_other_reply_is_told_as_it_is(reply: Any):
    assert json.loads(text(invoked(reply))) == reply


def test_an_empty_reply_is_an_empty_text():
    assert text(invoked({})) == ""


def test_a_refusal_is_told_as_the_backends():
    assert failed("NOT_FOUND", "no such remote") == {
        "content": [{"type": "text", "text": "backend error [NOT_FOUND]: no such remote"}],
        "isError": True,
    }
    assert text(failed("", "session reset")) == "backend error: session reset"


def test_what_is_nested_deeper_than_json_can_be_written_is_cut():
    deep: Any = "end"
    for _ in range(600):
        deep = [deep]

    assert pretty(deep).startswith("[[[[")
    assert "\n" not in pretty(deep)
