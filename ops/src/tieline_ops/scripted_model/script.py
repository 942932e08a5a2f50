"""Pure: scripts for the server: what it answers to one request after the other, well-formed or not.

A script is a JSON object {"replies": [...], "then": "rules" | "repeat" | "refuse"} (what comes after the last reply).
A reply has any of: `status` (not 200: `error` {message, code} is the body), `headers`, `unchecked` (true: invalid
requests get it too, as they do where `status` is not 200), and `steps`, each an object with one key:

    {"text": "..."}           a delta with text                {"reasoning": "..."}   one with thoughts
    {"delta": {...}}          any delta                        {"chunk": {...}}       any chunk
    {"call": {...}}           a whole call: id?, index?, name, arguments, in as many deltas as `pieces` says (1)
    {"finish": "stop"}        the finish reason                {"usage": [in, out]}   the count of tokens
    {"done": true}            the line [DONE]                  {"raw": "..."}         bytes of the stream as they are
    {"comment": "..."}        a comment line                   {"wait": seconds}      silence
    {"comments": seconds}     a comment every so often, for ever
    {"stall": true}           silence for ever                 {"cut": true}          the connection breaks

Steps that say nothing of an end end well: finish (tool_calls after a call), usage, [DONE]. `finish`, `stall`, `cut`,
`done`, `comments` and `end` (true: the body simply ends) say something of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tieline_ops.scripted_model import answers

_ENDS = {"finish", "stall", "cut", "done", "comments", "end"}


@dataclass(frozen=True, slots=True)
class Send:
    """Bytes of the stream."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Silence; None: for ever."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Comments:
    """Comment lines for ever."""

    every: float


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection breaks here."""


Act = Send | Wait | Comments | Cut


class Script:
    """Gives one reply for each request."""

    def __init__(
        self,
        replies: list[dict[str, Any]] | None = None,
        then: Literal["rules", "repeat", "refuse"] = "rules",
    ) -> None:
        self.replies = list(replies or [])
        self.then = then
        self._given = 0

    @classmethod
    def parse(cls, text: str | bytes) -> Script:
        """Raises ValueError for what is no script."""
        value = json.loads(text)
        if not isinstance(value, dict) or not isinstance(value.get("replies"), list):
            raise ValueError('a script is {"replies": [...], "then": ...}')
        then = value.get("then", "rules")
        if then not in ("rules", "repeat", "refuse"):
            raise ValueError(f"`then` is rules, repeat or refuse, not {then!r}")
        return cls(value["replies"], then)

    def peek(self) -> dict[str, Any] | None:
        """The next reply; None: by the rules of answers.py."""
        if self._given < len(self.replies):
            return self.replies[self._given]
        if self.then == "repeat" and self.replies:
            return self.replies[self._given % len(self.replies)]
        if self.then == "refuse":
            return {"status": 500, "error": {"message": "the script is at its end", "code": "script_ended"}}
        return None

    def next(self) -> dict[str, Any] | None:
        """Take the next reply."""
        reply = self.peek()
        self._given += 1
        return reply


def is_checked(reply: dict[str, Any] | None) -> bool:
    """Whether only a valid request gets this reply; a server that is overloaded, say, looks at nothing."""
    return reply is None or (reply.get("status", 200) == 200 and not reply.get("unchecked"))


def by_rules(answer: answers.Answer) -> dict[str, Any]:
    """The reply that says an answer."""
    steps: list[dict[str, Any]] = [{"text": piece} for piece in answers.pieces(answer.text)]
    steps += [{"call": {"name": name, "arguments": given, "pieces": 3}} for name, given in answer.calls]
    return {"steps": steps}


def acts(steps: list[dict[str, Any]], body: dict[str, Any], request: int) -> Iterator[Act]:
    """What to do on the wire. `request` numbers the request and names what has no name."""
    chunks = _Chunks(str(body.get("model", answers.MODEL)), request)
    said, called = "", 0
    for step in steps:
        ((kind, value),) = step.items()
        if kind == "call":
            yield from (chunks.delta(delta) for delta in _call(value, request, called))
            called += 1
            continue
        said += value if kind in ("text", "reasoning") else ""
        yield from _act(kind, value, chunks)
    if not any(kind in _ENDS for step in steps for kind in step):
        yield chunks.finish("tool_calls" if called else "stop")
        yield chunks.usage(
            answers.tokens(json.dumps(body.get("messages"))), answers.tokens(said) + 8 * called
        )
        yield Send(b"data: [DONE]\n\n")


def _act(kind: str, value: Any, chunks: _Chunks) -> Iterator[Act]:
    match kind:
        case "text":
            yield chunks.delta({"content": value})
        case "reasoning":
            yield chunks.delta({"reasoning_content": value})
        case "delta":
            yield chunks.delta(value)
        case "chunk":
            yield _data(value)
        case "finish":
            yield chunks.finish(value)
        case "usage":
            yield chunks.usage(*value)
        case "done":
            yield Send(b"data: [DONE]\n\n")
        case "raw":
            # Latin-1 lets a script write any byte.
            yield Send(value.encode("latin-1"))
        case "comment":
            yield Send(f": {value}\n\n".encode())
        case "wait":
            yield Wait(value)
        case "comments":
            yield Comments(value)
        case "stall":
            yield Wait(None)
        case "cut":
            yield Cut()
        case "end":
            return
        case _:
            raise ValueError(f"a script has no step {kind!r}")


def _call(call: dict[str, Any], request: int, position: int) -> Iterator[dict[str, Any]]:
    arguments = call.get("arguments", "{}")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    index = call.get("index", position)
    first = {"name": call["name"], "arguments": ""}
    call_id = call.get("id", f"call_{request}_{position}")
    yield {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": first}]}
    length = max(1, -(-len(text) // call.get("pieces", 1)))
    for start in range(0, len(text), length):
        yield {"tool_calls": [{"index": index, "function": {"arguments": text[start : start + length]}}]}


class _Chunks:
    """Chunks of one answer."""

    def __init__(self, model: str, request: int) -> None:
        self._frame = {
            "id": f"chatcmpl-scripted-{request}",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": model,
        }

    def delta(self, delta: dict[str, Any]) -> Send:
        return self._choice({"index": 0, "delta": delta, "finish_reason": None})

    def finish(self, reason: str) -> Send:
        return self._choice({"index": 0, "delta": {}, "finish_reason": reason})

    def usage(self, given: int, said: int) -> Send:
        usage = {"prompt_tokens": given, "completion_tokens": said, "total_tokens": given + said}
        return _data({**self._frame, "choices": [], "usage": usage})

    def _choice(self, choice: dict[str, Any]) -> Send:
        return _data({**self._frame, "choices": [choice]})


def _data(value: Any) -> Send:
    return Send(b"data: %b\n\n" % json.dumps(value).encode())


def whole(sent: list[Act], model: str, request: int) -> dict[str, Any]:
    """The same answer for somebody who asked without `stream`."""
    text, reason = "", "stop"
    calls: list[dict[str, Any]] = []
    usage: dict[str, int] = {}
    for act in sent:
        if not isinstance(act, Send) or not act.data.startswith(b"data: {"):
            continue
        chunk = json.loads(act.data[6:])
        usage = chunk.get("usage", usage)
        for choice in chunk["choices"]:
            reason = choice["finish_reason"] or reason
            text += choice["delta"].get("content") or ""
            for piece in choice["delta"].get("tool_calls", ()):
                if "id" in piece:
                    calls.append({**piece, "function": dict(piece["function"])})
                else:
                    calls[-1]["function"]["arguments"] += piece["function"]["arguments"]
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = calls
    return {
        "id": f"chatcmpl-scripted-{request}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": usage,
    }
