"""Pure: what the demo's second act must have seen: a chat whose model uses a person's own functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Event = dict[str, Any]

REMOTE = "weather"
FUNCTION = "temperature"
TOOL = f"{REMOTE}__{FUNCTION}"
KNOWN, UNKNOWN = "Bergen", "Atlantis"
TEMPERATURE = "7 °C in Bergen"
FAILURE = "there is no station in Atlantis"
RESOURCE = {"kind": "system", "subkind": "remote", "content": REMOTE}
# A model would understand the first line alone; the scripted one needs the others.
QUESTION = "\n".join(
    (
        "How warm is it in Bergen, and in Atlantis?",
        f'call {TOOL} {{"city": "{KNOWN}"}}',
        f'call {TOOL} {{"city": "{UNKNOWN}"}}',
    )
)
PROMPT = f'tool {TOOL} {{"city": "{KNOWN}"}}'


def is_ended(events: Sequence[Event]) -> bool:
    """Whether the run is over."""
    return any(event.get("type") == "run" and event.get("state") == "ended" for event in events)


def problems(events: Sequence[Event], cities: Sequence[str], together: bool) -> list[str]:
    """What is not as it must be. `cities` are what the functions were called with, in any order."""
    found = []
    ends = [event.get("reason") for event in _of(events, "run") if event.get("state") == "ended"]
    if ends != ["answer"]:
        found.append(f"the run ended {len(ends)} times: {ends}")
    if sorted(cities) != sorted((KNOWN, UNKNOWN)):
        found.append(f"the function was called with {list(cities)}")
    if not together:
        found.append("the two calls were not under way at the same time")
    results = [event.get("result") for event in _of(events, "tool_result") if "error" not in event]
    errors = [str(event["error"]) for event in _of(events, "tool_result") if "error" in event]
    if results != [TEMPERATURE]:
        found.append(f"the results are {results}")
    if len(errors) != 1 or FAILURE not in errors[0]:
        found.append(f"the failures are {errors}")
    return found + _wrong_with_answers(events)


def _wrong_with_answers(events: Sequence[Event]) -> list[str]:
    answers = [event for event in _of(events, "message") if event.get("role") == "assistant"]
    if not answers:
        return ["there is no answer"]
    said = str(answers[-1].get("content"))
    found = [f"the answer does not tell: {part}" for part in (TEMPERATURE, FAILURE) if part not in said]
    for answer in answers:
        pieces = [event for event in _of(events, "delta") if event["message_id"] == answer["message_id"]]
        if "".join(str(event["text"]) for event in pieces) != answer.get("content"):
            found.append("the pieces of an answer are not the answer")
    return found


def _of(events: Sequence[Event], kind: str) -> list[Event]:
    return [event for event in events if event.get("type") == kind]
