"""Where the time of turns and runs went."""

from typing import Any

from tieline_ops.cli import tracing
from tieline_ops.cli.lines import Told


def told(*events: tuple[int, dict[str, Any]]) -> list[Told]:
    return [Told("u", "s1", "agent", "", time, event, "") for time, event in events]


def turn(state: str, generation: int = 1, **rest: Any) -> dict[str, Any]:
    return {"type": "turn", "generation": generation, "state": state, **rest}


TURN = told(
    (900, {"type": "message_chunk", "text": "of no turn"}),
    (1_000, turn("accepted")),
    (1_010, turn("running")),
    (1_020, turn("running", stalled=True)),
    (1_050, {"type": "reasoning", "text": "hm"}),
    (1_100, {"type": "message_chunk", "text": "a"}),
    (1_110, {"type": "message_chunk", "text": "b"}),
    (1_200, {"type": "tool_call", "tool_call_id": "c1", "tool_title": "ls"}),
    (1_250, {"type": "tool_update", "tool_call_id": "c1", "tool_status": "in_progress"}),
    (1_300, {"type": "permission_request", "permission_title": "write"}),
    (1_301, turn("waiting_permission")),
    (2_300, turn("running")),
    (2_400, {"type": "tool_update", "tool_call_id": "c1", "tool_status": "completed"}),
    (2_500, {"type": "tool_call", "tool_call_id": "c2"}),
    (2_600, {"type": "agent_error", "error": "oops"}),
    (3_000, turn("ended", reason="end_turn")),
    (4_000, turn("accepted", 2)),
)


def steps(span: dict[str, Any]) -> dict[str, tuple[int, int | None, str]]:
    return {step["what"]: (step["start_ms"], step["took_ms"], step["outcome"]) for step in span["steps"]}


def test_a_turn_with_its_tools_and_permissions() -> None:
    first, second = tracing.spans(TURN)

    assert (first["name"], first["took_ms"], first["state"], first["reason"]) == (
        "turn 1",
        2_000,
        "ended",
        "end_turn",
    )
    found = steps(first)
    assert found["first thought"][0] == 50
    assert found["first words"][0] == 100
    assert found["ls"] == (200, 1_200, "completed")
    assert found["permission write"] == (300, 1_000, "answered")
    assert found["c2"] == (1_500, None, "")
    assert found["oops"][2] == "error"
    assert (second["name"], second["took_ms"], second["state"]) == ("turn 2", None, "accepted")


def test_a_run_with_its_calls_of_remotes() -> None:
    run = {"run_id": "r1"}
    (span,) = tracing.spans(
        told(
            (0, {"type": "run", **run, "state": "queued"}),
            (5, {"type": "run", **run, "state": "running"}),
            (20, {"type": "delta", **run, "text": "x"}),
            (30, {"type": "tool_call", **run, "tool_call_id": "c", "remote": "browser", "function": "open"}),
            (31, {"type": "tool_call", "run_id": "r9", "tool_call_id": "z"}),
            (90, {"type": "tool_result", **run, "tool_call_id": "c", "error": "no", "code": "timeout"}),
            (95, {"type": "tool_call", **run, "tool_call_id": "d", "remote": "browser", "function": "shut"}),
            (99, {"type": "tool_result", **run, "tool_call_id": "d", "result": 1}),
            (100, {"type": "run", **run, "state": "ended", "reason": "answer"}),
        )
    )

    assert (span["kind"], span["name"], span["took_ms"], span["reason"]) == ("run", "r1", 100, "answer")
    assert steps(span)["browser.open"] == (30, 60, "timeout")
    assert steps(span)["browser.shut"] == (95, 4, "ok")


def test_a_clock_that_is_set_back_makes_a_step_take_nothing() -> None:
    """B94: the clock of the log's owner may step."""
    (span,) = tracing.spans(told((5_000, turn("accepted")), (1_000, turn("running")), (2_000, turn("ended"))))

    assert span["took_ms"] == 0
    assert all(step["start_ms"] == 0 for step in span["steps"])


def test_it_is_drawn_with_bars_that_fit() -> None:
    lines = tracing.drawn(tracing.spans(TURN), width=90)
    tool = next(line for line in lines if line.endswith("ls completed"))

    assert lines[0] == "turn 1  2000 ms  ended, end_turn"
    assert tool.count("█") == 14
    assert "1200 ms" in tool
    assert max(map(len, lines)) <= 90
    narrow = tracing.drawn(tracing.spans(TURN), width=50)
    assert max(map(len, narrow)) <= 50
    assert any(line.endswith("ls completed") for line in narrow)


def test_colours_and_texts_of_peers_do_no_harm() -> None:
    spans = tracing.spans(
        told(
            (0, turn("accepted")),
            (1, {"type": "tool_call", "tool_call_id": "x", "tool_title": "\x1b[2J" * 40}),
            (20_000, {"type": "tool_update", "tool_call_id": "x", "tool_status": "failed"}),
        )
    )

    assert "\x1b[2J" not in "".join(tracing.drawn(spans, colour=True))
    assert "\x1b[31m" in "".join(tracing.drawn(spans, colour=True))
    assert "20.0 s" in "".join(tracing.drawn(spans))
