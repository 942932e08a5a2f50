"""Pure: what a chunk of a streamed answer says.

Chunks are taken as the JSON that they are: objects of the client package would cost more than all the rest of an
answer's way. Whatever a provider leaves out or gets wrong says nothing here; what is wrong where something is needed
raises TypeError or AttributeError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tieline_protocol import jsontext

from tieline_agent.assembly import CallDelta, Delta, ReasoningDelta, TextDelta, Usage


def pieces(chunk: Any) -> Iterator[Delta]:
    """The pieces of the answer in a chunk."""
    choice = _choice(chunk)
    delta = choice.get("delta") if choice else None
    if delta is None:
        return
    thought = delta.get("reasoning_content") or delta.get("reasoning")
    if isinstance(thought, str) and thought:
        yield ReasoningDelta(thought)
    for text in (delta.get("content"), delta.get("refusal")):
        if text:
            yield TextDelta(_string(text))
    for call in delta.get("tool_calls") or ():
        index, function = call.get("index"), call.get("function")
        yield CallDelta(
            index if isinstance(index, int) else None,
            _string(call.get("id")),
            _string(function.get("name")) if function else None,
            _string(function.get("arguments")) if function else None,
        )


def finish_reason(chunk: Any) -> str | None:
    """Why the answer ends here, where it does."""
    choice = _choice(chunk)
    reason = choice.get("finish_reason") if choice else None
    return str(reason) if reason else None


def usage(chunk: Any) -> Usage | None:
    """The count of tokens, where the chunk brings it."""
    told = chunk.get("usage")
    if told is None:
        return None
    return Usage(int(told.get("prompt_tokens") or 0), int(told.get("completion_tokens") or 0))


def _choice(chunk: Any) -> Any:
    choices = chunk.get("choices")
    return choices[0] if choices else None


def _string(value: object) -> str:
    if value is None:
        return ""
    # Some write arguments as the object that they should have encoded.
    return value if isinstance(value, str) else jsontext.dumps(value).decode()
