"""The scripted model refuses what the real API refuses."""

from typing import Any

import pytest
from tieline_ops.scripted_model import validation


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **more}


def user(content: Any = "hi") -> dict[str, Any]:
    return {"role": "user", "content": content}


def call(id: Any = "a", name: Any = "f", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: Any, content: Any = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(id: Any = "a", content: Any = "1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def tool(name: Any = "f", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


@pytest.mark.parametrize(
    "good",
    [
        body({"role": "system", "content": "x"}, user(), {"role": "assistant", "content": ""}, user()),
        body(user([{"type": "text", "text": "hi"}])),
        body(user(), calling(call("a"), call("b")), result("b"), result("a"), user()),
        body(user(), calling(call(), content="Let me"), result(), tools=[tool()], tool_choice="auto"),
        body(user(), tools=[tool(f"f{n}") for n in range(128)]),
        body(
            user(),
            tools=[
                tool(
                    description="d" * 1024,
                    parameters={
                        "type": "object",
                        "properties": {"a": {"type": "array", "items": {"type": "string"}}},
                    },
                )
            ],
        ),
    ],
)
def test_a_good_request_is_taken(good: dict[str, Any]):
    validation.check(good)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ([], "must be a JSON object"),
        ({"messages": [user()]}, "model"),
        (body(), "too short"),
        ({"model": "m", "messages": "hi"}, "too short"),
        (body("hi"), "role"),  # type: ignore[arg-type]
        (body({"role": "robot", "content": ""}), "role"),
        (body(user(None)), "content"),
        (body(user(["hi"])), "content"),
        (body(result()), "must be a response to a preceding"),
        (body(user(), calling(call())), "did not have response messages: a"),
        (
            body(user(), calling(call("a"), call("b")), result("b"), user(), result("a")),
            "responses? messages: a",
        ),
        (body(user(), calling(call()), result(), result()), "must be a response"),
        (body(user(), calling(call()), result(content=[{"type": "text"}])), "content"),
        (body(user(), calling()), "too short"),
        (body(user(), calling(call(), content=1), result()), "content"),
        (body(user(), calling(call(), call()), result()), "more than once"),
        (body(user(), calling("f"), result()), "missing required"),
        (body(user(), calling({**call(), "type": "odd"}), result()), "missing required"),
        (body(user(), calling(call("")), result("")), "id"),
        (body(user(), calling(call("x" * 65)), result("x" * 65)), "id"),
        (body(user(), calling(call(name="a.b")), result()), "does not match pattern"),
        (body(user(), calling(call(arguments="[]")), result()), "JSON text of an object"),
        (body(user(), calling(call(arguments="{")), result()), "JSON text of an object"),
        (body(user(), calling(call(arguments={})), result()), "JSON text of an object"),
        (body({"role": "assistant", "content": None}), "content"),
        (body(user(), tools=[]), "too short"),
        (body(user(), tool_choice="auto"), "only allowed when"),
        (body(user(), tools=[tool(f"f{n}") for n in range(129)]), "maximum length 128"),
        (body(user(), tools=["f"]), "missing required"),
        (body(user(), tools=[{"type": "web", "function": {}}]), "missing required"),
        (body(user(), tools=[tool("")]), "does not match pattern"),
        (body(user(), tools=[tool(), tool()]), "not unique"),
        (body(user(), tools=[tool(description="d" * 1025)]), "description"),
        (body(user(), tools=[tool(parameters=None)]), "not of type 'object'"),
        (body(user(), tools=[tool(parameters={"type": "string"})]), "must be of type 'object'"),
        (body(user(), tools=[tool(parameters={"type": "object", "properties": []})]), "not of type 'object'"),
        (
            body(user(), tools=[tool(parameters={"type": "object", "properties": {"a": {"type": "array"}}})]),
            "missing items",
        ),
        (
            body(user(), tools=[tool(parameters={"type": "object", "properties": {"a": {"items": 1}}})]),
            "not of type 'object'",
        ),
    ],
)
def test_a_bad_request_is_refused_in_words(bad: Any, says: str):
    with pytest.raises(validation.Invalid, match=says.replace("responses? messages", "response messages")):
        validation.check(bad)
