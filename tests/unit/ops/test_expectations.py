from typing import Any

import pytest
from tieline_ops import expectations as ex
from tieline_ops.expectations import Heard


def played() -> Heard:
    """What a viewer hears when all goes well."""
    heard = Heard()
    agent: list[dict[str, Any]] = [
        *({"type": "message_chunk", "text": text} for text in (ex.BEFORE, ex.AFTER, ex.DONE)),
        *({"type": "permission_request", "request_id": str(n)} for n in range(2)),
        *({"type": "tool_call", "tool_call_id": str(n)} for n in range(2)),
        *({"type": "tool_update", "tool_call_id": str(n), "tool_status": "complete"} for n in range(2)),
        {"type": "turn", "state": "running"},
        {"type": "turn", "state": "ended", "reason": "end_turn"},
    ]
    for offset, event in enumerate(agent):
        heard.add("agent", f"a{offset}", event)
    heard.add("workspace", "w1", {"type": "shell_output", "data": f"$ {ex.SHELL_OUTPUT[:4]}"})
    heard.add("workspace", "w2", {"type": "shell_output", "data": ex.SHELL_OUTPUT[4:]})
    return heard


def test_nothing_is_wrong_when_all_went_well() -> None:
    assert ex.problems(played()) == []
    assert played().ended


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        ({"type": "message_chunk", "text": "?"}, "the agent's words"),
        ({"type": "turn", "state": "ended", "reason": "error"}, "ended 2 times"),
        ({"type": "tool_call", "tool_call_id": "9"}, "3 tool calls"),
        ({"type": "permission_request"}, "3 permissions"),
        ({"type": "gap", "reason": "overflow"}, "gaps"),
    ],
)
def test_one_event_too_many_is_found(extra: dict[str, Any], problem: str) -> None:
    heard = played()
    heard.add("agent", "a99", extra)

    assert [problem in found for found in ex.problems(heard)] == [True]


def test_an_event_that_came_twice_is_found() -> None:
    heard = played()
    heard.add("workspace", "w2", {"type": "git_status"})

    assert ex.problems(heard) == ["an event of the workspace log came twice"]


def test_a_silent_shell_is_found() -> None:
    heard = Heard([entry for entry in played().events if entry[0] == "agent"])

    assert ex.problems(heard) == ["the shell's output is missing"]


def test_a_log_that_holds_something_else_is_found() -> None:
    kept = played()
    assert ex.differences(played(), kept) == []

    kept.events.pop()

    assert ex.differences(played(), kept) == [
        "the workspace log holds other events than were received: 1, not 2"
    ]


def test_the_prompt_has_one_directive_a_line() -> None:
    assert [line.split(" ")[0] for line in ex.PROMPT.split("\n")] == [
        *("think", "plan", "say", "write", "say", "run", "say")
    ]
