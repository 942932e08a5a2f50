"""What the scripted model says by its rules."""

from typing import Any

import pytest
from tieline_ops.scripted_model import answers

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": parameters}}
    for name, parameters in (
        ("calc__divide", {"type": "object", "required": ["a"], "properties": {"a": {"type": "number"}}}),
        ("cal__respond_1f", {}),
    )
]


def said(text: Any, *more: dict[str, Any], tools: list[dict[str, Any]] | None = None) -> answers.Answer:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": text}, *more]}
    return answers.answer({**body, "tools": tools} if tools else body)


def test_its_first_answer_and_its_name_say_that_there_is_no_ai():
    assert "not an AI" in said("hello").text
    assert "no-ai" in answers.MODEL
    assert (
        "not an AI"
        not in said("hello", {"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}).text
    )


def test_call_lines_become_parallel_calls():
    answer = said('Please\ncall calc__divide {"a": 1}\n`call calc.divide {"a": 2}`\ncall divide', tools=TOOLS)

    assert answer.calls == (
        ("calc__divide", '{"a": 1}'),
        ("calc__divide", '{"a": 2}'),
        ("calc__divide", "{}"),
    )


def test_a_function_whose_name_had_to_be_fitted_is_found_by_its_beginning():
    assert said("call cal.respond", tools=TOOLS).calls == (("cal__respond_1f", "{}"),)


def test_a_tool_that_is_not_there_is_named():
    answer = said("call nobody {}", tools=TOOLS)

    assert answer.calls == ()
    assert "no tool nobody" in answer.text
    assert "calc__divide" in answer.text


def test_use_the_tools_calls_each_with_arguments_that_fit():
    answer = said("Use the tools, please", tools=TOOLS)

    assert answer.calls == (("calc__divide", '{"a": 1}'), ("cal__respond_1f", "{}"))
    assert "no tools" in said("use the tools").text


def test_it_answers_from_results_and_tells_failures_apart():
    calls = [
        {"id": "1", "type": "function", "function": {"name": "calc__divide", "arguments": "{}"}},
        {"id": "2", "type": "function", "function": {"name": "calc__divide", "arguments": "{}"}},
    ]
    answer = said(
        "call both",
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "0.5"},
        {"role": "tool", "tool_call_id": "2", "content": "error: internal: division by zero"},
        tools=TOOLS,
    )

    assert answer.text == "calc__divide answered: 0.5\ncalc__divide failed: internal: division by zero"


def test_anything_else_is_repeated_with_the_tools_there_are():
    assert "You said: hello\nThis thread has no tools." in said("hello").text
    assert "The tools here are: calc__divide" in said([{"type": "text", "text": "hello"}], tools=TOOLS).text
    assert "You said: \n" in answers.answer({"messages": [{"role": "system", "content": "x"}]}).text


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"default": 7, "type": "string"}, 7),
        ({"const": None}, None),
        ({"enum": ["x", "y"]}, "x"),
        ({"examples": ["e"]}, "e"),
        ({"type": "string"}, "example"),
        ({"type": ["integer", "null"], "minimum": 3}, 3),
        ({"type": "number"}, 1),
        ({"type": "boolean"}, True),
        ({"type": "array", "items": {"type": "string"}, "minItems": 2}, ["example", "example"]),
        ({"type": "array"}, []),
        ({"properties": {"a": {"type": "boolean"}}, "required": ["a", "b"]}, {"a": True, "b": None}),
        ({"type": "null"}, None),
        ({"type": []}, None),
        ({}, None),
        ("odd", None),
    ],
)
def test_an_example_fits_its_schema(schema: Any, value: Any):
    assert answers.example(schema) == value


def test_pieces_lose_nothing():
    text = "  Two  words\nand a line \n"

    assert "".join(answers.pieces(text)) == text
    assert answers.tokens("one two three") == 3
