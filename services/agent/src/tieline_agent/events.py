"""Pure: the events of a thread's log, built in one place (frontend-protocol, "Chat").

Fields beyond those of the protocol are there for the fold (history.py): what stands in the log is all that a new
owner of the thread knows. A client ignores fields that it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from tieline_agent.assembly import Usage
from tieline_agent.results import Outcome

Event = dict[str, Any]
Reason = Literal[
    "answer", "cancelled", "error", "limit_steps", "limit_tool_calls", "limit_tokens", "limit_time"
]


def user_message(
    message_id: str, run_id: str, content: str, resources: Sequence[dict[str, Any]] = ()
) -> Event:
    """What the user said. It names its run, so that no crash can part the two."""
    event: Event = {
        "type": "message",
        "message_id": message_id,
        "role": "user",
        "content": content,
        "run_id": run_id,
    }
    if resources:
        event["resources"] = list(resources)
    return event


def run_queued(run_id: str, traceparent: str | None = None) -> Event:
    """`traceparent` is that of the request which asked for the run; its tools are called with it."""
    trace = {} if traceparent is None else {"traceparent": traceparent}
    return {"type": "run", "run_id": run_id, "state": "queued", **trace}


def run_running(run_id: str, started: int, notes: dict[str, Any]) -> Event:
    """`started` is Unix milliseconds: the limit of wall clock holds over a change of owner. `notes` are told as they
    are (tools that found no room, remotes that are not there)."""
    return {**notes, "type": "run", "run_id": run_id, "state": "running", "started": started}


def run_ended(run_id: str, reason: Reason, usage: Usage, error: dict[str, str] | None = None) -> Event:
    event: Event = {
        "type": "run",
        "run_id": run_id,
        "state": "ended",
        "reason": reason,
        "usage": usage_fields(usage),
    }
    if error is not None:
        event["error"] = error
    return event


def answer(
    run_id: str,
    message_id: str,
    content: str,
    finish: str,
    usage: Usage,
    tool_calls: Sequence[dict[str, str]] = (),
) -> Event:
    """A whole answer of the model. `tool_calls` are {id, name, arguments}, as the model wrote them."""
    event: Event = {
        "type": "message",
        "message_id": message_id,
        "role": "assistant",
        "content": content,
        "run_id": run_id,
        "finish": finish,
        "usage": usage_fields(usage),
    }
    if tool_calls:
        event["tool_calls"] = list(tool_calls)
    return event


def interrupted(run_id: str, message_id: str, content: str) -> Event:
    """An answer that did not come to its end: kept for people, left out of the history."""
    return {
        "type": "message",
        "message_id": message_id,
        "role": "assistant",
        "content": content,
        "run_id": run_id,
        "interrupted": True,
    }


def delta(run_id: str, message_id: str, text: str) -> Event:
    return {"type": "delta", "run_id": run_id, "message_id": message_id, "text": text}


def reasoning(run_id: str, message_id: str, text: str) -> Event:
    return {"type": "reasoning", "run_id": run_id, "message_id": message_id, "text": text}


def tool_call(
    run_id: str, tool_call_id: str, name: str, remote: str, function: str, arguments: dict[str, Any] | str
) -> Event:
    """A call is about to be made. `arguments` is the object, or the text when it is none."""
    return {
        "type": "tool_call",
        "run_id": run_id,
        "tool_call_id": tool_call_id,
        "name": name,
        "remote": remote,
        "function": function,
        "arguments": arguments,
    }


def tool_progress(run_id: str, tool_call_id: str, progress: dict[str, Any]) -> Event:
    return {**progress, "type": "tool_progress", "run_id": run_id, "tool_call_id": tool_call_id}


def tool_result(run_id: str, tool_call_id: str, outcome: Outcome) -> Event:
    event: Event = {"type": "tool_result", "run_id": run_id, "tool_call_id": tool_call_id}
    if outcome.error is not None:
        return {**event, "error": outcome.error, "code": str(outcome.code)}
    return {**event, "result": outcome.result}


def usage_fields(usage: Usage) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total,
    }
    if usage.estimated:
        fields["estimated"] = True
    return fields
