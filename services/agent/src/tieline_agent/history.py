"""Pure: the messages that a provider takes, made from a thread, at every prefix of its log.

Rule 1: a history has the runs in the order of the thread, up to the run that asks.
Rule 2: each answer with calls is followed directly by one message for each call, in call order; a call that has no
        outcome (yet) reads as interrupted. An interrupted answer is left out.
Rule 3: it is bounded: the oldest runs are left out whole, the run that asks never is.
"""

from __future__ import annotations

from typing import Any

from tieline_protocol import naming

from tieline_agent import arguments
from tieline_agent.thread import Call, RunState, Thread

ChatMessage = dict[str, Any]


def messages(
    thread: Thread, run_id: str, instructions: str = "", *, most: int = 400_000, most_result: int = 100_000
) -> list[ChatMessage]:
    """The history for the next request of a run, of about `most` characters and `most_result` for each result."""
    turns = [_turn(run, most_result) for run in thread.until(run_id)]
    kept: list[ChatMessage] = []
    room = most
    for turn in reversed(turns):
        room -= sum(map(size, turn))
        if room < 0 and kept:
            break
        kept = turn + kept
    return ([{"role": "system", "content": instructions}] if instructions else []) + kept


def size(message: ChatMessage) -> int:
    """About how many characters a message costs."""
    calls = message.get("tool_calls", ())
    return len(message["content"] or "") + sum(len(call["function"]["arguments"]) + 32 for call in calls)


def _turn(run: RunState, most_result: int) -> list[ChatMessage]:
    turn: list[ChatMessage] = []
    if run.message_id is not None:
        turn.append({"role": "user", "content": run.content})
    for step in run.steps:
        if step.calls:
            turn.append(
                {
                    "role": "assistant",
                    "content": step.content or None,
                    "tool_calls": [_tool_call(call) for call in step.calls],
                }
            )
            turn += [
                {"role": "tool", "tool_call_id": call.id, "content": call.told().text(most_result)}
                for call in step.calls
            ]
        elif step.content:
            turn.append({"role": "assistant", "content": step.content})
    return turn


def _tool_call(call: Call) -> dict[str, Any]:
    function = {
        "name": naming.fitted(call.name, "unknown"),
        "arguments": arguments.as_history(call.arguments),
    }
    return {"id": call.id, "type": "function", "function": function}
