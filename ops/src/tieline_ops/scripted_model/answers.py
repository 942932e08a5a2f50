"""Pure: what the scripted model says when no script says it: always the same to the same request.

- `call NAME {json}` lines in what the user said become calls, all in one answer; NAME is a tool's name, or
  `remote.function`, or the function alone where that is clear.
- `use the tools` calls every tool that is offered (at most eight), with arguments made from its schema.
- After results it answers from them. Everything else it answers with what it understands.
- Its first answer of a conversation says that there is no AI here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

MODEL = "tieline-scripted-no-ai"
_HELLO = (
    "I am the scripted stand-in, not an AI: no OPENAI_API_KEY is set, so I answer by fixed rules. "
    "Say `call NAME {json}` (one line for each call) or `use the tools`, and I call the tools of this thread."
)
_CALL = re.compile(r"^\s*`?call\s+([^\s{`]+)\s*(\{.*\})?\s*`?\s*$", re.MULTILINE | re.IGNORECASE)
_USE = re.compile(r"\buse (?:the |all |your )*tools?\b", re.IGNORECASE)
_MOST_CALLS = 8


@dataclass(frozen=True, slots=True)
class Answer:
    """What to stream: some text, then calls (name, arguments as JSON text)."""

    text: str
    calls: tuple[tuple[str, str], ...] = ()


def answer(body: dict[str, Any]) -> Answer:
    """The answer to a valid request."""
    messages: list[dict[str, Any]] = body["messages"]
    tools = {tool["function"]["name"]: tool["function"] for tool in body.get("tools", [])}
    asked = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=-1)
    hello = "" if any(message["role"] == "assistant" for message in messages) else _HELLO + "\n\n"
    results = [message for message in messages[asked + 1 :] if message["role"] == "tool"]
    if results:
        return Answer(_report(messages, results))
    text = _text(messages[asked]) if asked >= 0 else ""
    calls, problems = _calls(text, tools)
    if calls:
        return Answer(
            f"{hello}{''.join(problems)}Calling {', '.join(name for name, _ in calls)}.", tuple(calls)
        )
    if problems:
        return Answer(hello + "".join(problems).rstrip())
    return Answer(hello + _else(text, list(tools)))


def _else(text: str, names: list[str]) -> str:
    offered = f"The tools here are: {', '.join(names)}." if names else "This thread has no tools."
    return f"You said: {text[:500]}\n{offered}"


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content)


def _calls(text: str, tools: dict[str, Any]) -> tuple[list[tuple[str, str]], list[str]]:
    calls: list[tuple[str, str]] = []
    problems: list[str] = []
    for name, arguments in _CALL.findall(text):
        found = _find(name, list(tools))
        if found is None:
            problems.append(f"There is no tool {name}. {_else('', list(tools)).partition(chr(10))[2]}\n")
        else:
            calls.append((found, arguments or "{}"))
    if not calls and not problems and _USE.search(text):
        if not tools:
            problems.append("This thread has no tools.")
        for name, function in list(tools.items())[:_MOST_CALLS]:
            schema = {"type": "object", **function.get("parameters", {})}
            calls.append((name, json.dumps(example(schema), ensure_ascii=False)))
    return calls, problems


def _find(name: str, names: list[str]) -> str | None:
    fitted = re.sub(r"[./:]", "__", name)
    for wanted in (name, fitted):
        if wanted in names:
            return wanted
    ending = [each for each in names if each.endswith("__" + name) or each.startswith(fitted + "_")]
    return ending[0] if len(ending) == 1 else None


def example(schema: Any) -> Any:
    """Some value of a JSON Schema: its default, its first choice, else a small value of its type."""
    if not isinstance(schema, dict):
        return None
    for name in ("default", "const"):
        if name in schema:
            return schema[name]
    for name in ("enum", "examples"):
        if isinstance(schema.get(name), list) and schema[name]:
            return schema[name][0]
    kind = schema.get("type", "object" if "properties" in schema else None)
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        properties, required = schema.get("properties", {}), schema.get("required", [])
        return {name: example(properties.get(name)) for name in required}
    if kind == "array":
        return [example(schema.get("items")) for _ in range(schema.get("minItems", 0))]
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    return {"string": "example", "boolean": True}.get(str(kind))


def _report(messages: list[dict[str, Any]], results: list[dict[str, Any]]) -> str:
    names = {
        call["id"]: call["function"]["name"]
        for message in messages
        for call in message.get("tool_calls") or ()
    }
    lines = []
    for result in results:
        name, content = names[result["tool_call_id"]], _text(result)
        if content.startswith("error:"):
            lines.append(f"{name} failed: {content.removeprefix('error:').strip()}")
        else:
            lines.append(f"{name} answered: {content}")
    return "\n".join(lines)


def pieces(text: str) -> list[str]:
    """Text as a model streams it: a word at a time, nothing lost."""
    return re.findall(r"\s*\S+|\s+$", text)


def tokens(text: str) -> int:
    """A count of tokens that is good enough for one who has none."""
    return len(pieces(text))
