"""Pure: what the real API refuses with 400, refused here too, and a little more that only some providers refuse.

So a history or a tool that passes here passes everywhere. Messages are worded like those of the real API.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

MOST_TOOLS = 128
MOST_DESCRIPTION = 1024
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Invalid(Exception):
    """The request is refused; the text is for its sender."""


def check(body: Any) -> None:
    """Raises Invalid unless the body is a request for a chat completion that would be taken."""
    if not isinstance(body, dict):
        raise Invalid("the body must be a JSON object")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise Invalid("you must provide a model parameter")
    _check_messages(body.get("messages"))
    if "tools" in body:
        _check_tools(body["tools"])
    elif "tool_choice" in body or "parallel_tool_calls" in body:
        raise Invalid("'tool_choice' and 'parallel_tool_calls' are only allowed when 'tools' are specified")


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list) or not messages:
        raise Invalid("[] is too short - 'messages'")
    waiting: list[str] = []
    for position, message in enumerate(messages):
        where = f"messages.[{position}]"
        role = message.get("role") if isinstance(message, dict) else None
        if role == "tool":
            _check_answer(message, waiting, where)
            continue
        if waiting:
            raise Invalid(_unanswered(waiting))
        if role == "assistant":
            waiting = _check_assistant(message, where)
        elif role in ("system", "developer", "user"):
            _check_content(message, where)
        else:
            raise Invalid(f"invalid value for '{where}.role'")
    if waiting:
        raise Invalid(_unanswered(waiting))


def _unanswered(waiting: list[str]) -> str:
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
        f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}"
    )


def _check_answer(message: dict[str, Any], waiting: list[str], where: str) -> None:
    _check_content(message, where)
    answered = message.get("tool_call_id")
    if answered not in waiting:
        raise Invalid(
            f"messages with role 'tool' must be a response to a preceding message with 'tool_calls': {where}"
        )
    waiting.remove(answered)


def _check_content(message: dict[str, Any], where: str) -> None:
    content = message.get("content")
    if isinstance(content, list) and message["role"] != "tool":
        if all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in content):
            return
    elif isinstance(content, str):
        return
    raise Invalid(f"invalid type for '{where}.content': expected a string")


def _check_assistant(message: dict[str, Any], where: str) -> list[str]:
    if "tool_calls" not in message:
        _check_content(message, where)
        return []
    content, calls = message.get("content"), message["tool_calls"]
    if content is not None and not isinstance(content, str):
        raise Invalid(f"invalid type for '{where}.content': expected a string or null")
    if not isinstance(calls, list) or not calls:
        raise Invalid(f"[] is too short - '{where}.tool_calls'")
    ids = [_check_call(call, f"{where}.tool_calls") for call in calls]
    if len(set(ids)) != len(ids):
        raise Invalid(f"'{where}.tool_calls' has the same id more than once")
    return ids


def _check_call(call: Any, where: str) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type") != "function":
        raise Invalid(f"missing required parameter: '{where}.function'")
    if not isinstance(call.get("id"), str) or not 0 < len(call["id"]) <= 64:
        raise Invalid(f"invalid '{where}.id'")
    _check_name(function.get("name"), f"{where}.function.name")
    arguments = function.get("arguments")
    if not isinstance(arguments, str) or not _is_object(arguments):
        raise Invalid(f"invalid '{where}.function.arguments': expected the JSON text of an object")
    return str(call["id"])


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _check_name(name: Any, where: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Invalid(
            f"Invalid '{where}': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]{1,64}$'."
        )


def _check_tools(tools: Any) -> None:
    if not isinstance(tools, list) or not tools:
        raise Invalid("[] is too short - 'tools'")
    if len(tools) > MOST_TOOLS:
        raise Invalid(
            f"Invalid 'tools': array too long. Expected an array with maximum length {MOST_TOOLS}, but got an "
            f"array with length {len(tools)} instead."
        )
    names: set[str] = set()
    for position, tool in enumerate(tools):
        where = f"tools[{position}].function"
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or tool.get("type") != "function":
            raise Invalid(f"missing required parameter: '{where}'")
        _check_name(function.get("name"), f"{where}.name")
        if function["name"] in names:
            raise Invalid(f"'{where}.name' is not unique: {function['name']}")
        names.add(function["name"])
        description = function.get("description", "")
        if not isinstance(description, str) or len(description) > MOST_DESCRIPTION:
            raise Invalid(f"Invalid '{where}.description': expected a string of at most {MOST_DESCRIPTION}")
        if problems := list(_problems(function.get("parameters", {"type": "object"}), top=True)):
            raise Invalid(f"Invalid schema for function '{function['name']}': {problems[0]}")


def _problems(schema: Any, *, top: bool = False) -> Iterator[str]:
    if not isinstance(schema, dict):
        yield f"{schema!r} is not of type 'object'"
        return
    if top and schema.get("type") != "object":
        yield f"schema must be of type 'object', got {schema.get('type')!r}"
    if schema.get("type") == "array" and "items" not in schema:
        yield "array schema missing items"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        yield f"{properties!r} is not of type 'object'"
        return
    for inner in (*properties.values(), *([schema["items"]] if "items" in schema else [])):
        yield from _problems(inner)
