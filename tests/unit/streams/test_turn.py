"""One turn: what is due next, and what it tells."""

from __future__ import annotations

import pytest
from tieline_streams.turn import Limits, Turn, end_told, restored

LIMITS = Limits()


def running(now: float = 0) -> Turn:
    return Turn(1, None, now, "running", delivered=True)


def test_a_running_turn_is_asked_about_after_5_s_of_silence_and_stalls_after_5_minutes():
    turn = running()

    assert turn.coming(LIMITS, read=True, up=True) == (5, "ask")
    turn.asked = 5
    assert turn.coming(LIMITS, read=True, up=True) == (10, "ask")
    assert turn.coming(LIMITS, read=True, up=False) == (300, "stalled")


def test_silence_of_a_socket_that_is_not_read_says_nothing():
    turn = running()

    assert turn.coming(LIMITS, read=False, up=True) is None
    turn.cancel_by = 10
    assert turn.coming(LIMITS, read=False, up=True) == (10, "cancelled")


def test_a_turn_that_is_being_cancelled_is_not_asked_about():
    turn = running()
    turn.state, turn.cancel_by = "cancelling", 10

    assert turn.coming(LIMITS, read=True, up=True) == (10, "cancelled")


def test_a_prompt_that_nobody_has_answered_yet_is_not_asked_about():
    assert Turn(1, None, 0).coming(LIMITS, read=True, up=True) is None


def test_a_prompt_of_unknown_fate_ends_after_a_minute():
    turn = Turn(1, None, 0, unsure_since=5)

    assert turn.coming(LIMITS, read=True, up=False) == (65, "unknown")


def test_a_turn_tells_its_message_and_its_reason():
    turn = Turn(7, "m1", 0, "running", stalled=True)

    assert turn.told() == {
        "type": "turn",
        "generation": 7,
        "state": "running",
        "client_message_id": "m1",
        "stalled": True,
    }
    assert Turn(7, None, 0, "ended").told("error")["reason"] == "error"


@pytest.mark.parametrize(
    ("type", "data", "reason"),
    [
        ("complete", {"stop_reason": "end_turn"}, "end_turn"),
        ("complete", {"stop_reason": "no such reason"}, "unknown"),
        ("complete", None, "unknown"),
        ("complete", {"synthetic": True}, None),
        ("error", None, "error"),
        ("error", {"exit_code": 0}, "agent_exited"),
        ("message_chunk", None, None),
    ],
)
def test_what_ends_a_prompt_and_why(type: str, data: dict | None, reason: str | None):
    assert end_told(type, {"data": data}) == reason


@pytest.mark.parametrize(
    ("state", "delivered", "unsure", "cancel"),
    [
        ("accepted", False, 100, None),
        ("running", True, None, None),
        ("waiting_permission", True, None, None),
        ("cancelling", True, None, 110),
        ("of another version", False, None, None),
    ],
)
def test_a_turn_of_another_owner_goes_on_from_its_last_event(
    state: str, delivered: bool, unsure: float | None, cancel: float | None
):
    turn = restored({"generation": 3, "state": state, "client_message_id": 1}, 100, LIMITS)

    assert (turn.generation, turn.message_id, turn.recovered) == (3, None, True)
    assert (turn.delivered, turn.unsure_since, turn.cancel_by) == (delivered, unsure, cancel)
