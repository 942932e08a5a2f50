"""The turn machine as playbooks: what happens, and what is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol.errors import Code, Refused
from tieline_streams.turn import Due, Limits
from tieline_streams.turn_log import REMEMBERED
from tieline_streams.turns import MAX_OPEN, Turns


def started(message_id: str | None = None, now: float = 0) -> Turns:
    turns = Turns()
    turns.accept(message_id, False, now)
    turns.delivered(1, now)
    return turns


def told(events: list[dict]) -> list[tuple]:
    return [(event["generation"], event["state"], event.get("reason")) for event in events]


def complete(generation: int | None = 1, reason: object = "end_turn", **data: object) -> dict:
    value: dict = {"type": "complete", "data": {"stop_reason": reason, **data}}
    return value if generation is None else {**value, "prompt_generation": generation}


def test_a_turn_runs_from_accepted_to_its_end():
    turns = Turns()

    generation, accepted = turns.accept("m1", False, 0)
    running = turns.delivered(generation, 1)
    ended = turns.heard("complete", complete(), 2)

    assert accepted == [{"type": "turn", "generation": 1, "state": "accepted", "client_message_id": "m1"}]
    assert told(running) == [(1, "running", None)]
    assert told(ended) == [(1, "ended", "end_turn")]
    assert turns.latest == ended[0]
    assert not turns.open


def test_while_a_turn_is_open_another_prompt_conflicts():
    turns = started()

    with pytest.raises(Refused) as refused:
        turns.accept(None, False, 1)
    assert refused.value.code is Code.CONFLICT


def test_a_queued_prompt_is_a_turn_of_its_own_and_runs_next():
    turns = started()
    generation, accepted = turns.accept(None, True, 1)
    assert turns.delivered(generation, 1) == []

    events = turns.heard("complete", complete(1), 2)

    assert told(accepted) == [(2, "accepted", None)]
    assert told(events) == [(1, "ended", "end_turn"), (2, "running", None)]
    assert told(turns.heard("complete", complete(2), 3)) == [(2, "ended", "end_turn")]


def test_there_is_a_bound_on_prompts_that_wait():
    turns = Turns()
    for _ in range(MAX_OPEN):
        turns.accept(None, True, 0)

    with pytest.raises(Refused) as refused:
        turns.accept(None, True, 0)
    assert refused.value.code is Code.BUSY


def test_the_same_message_has_the_same_generation():
    turns = started("m1")

    assert turns.generation_of("m1") == 1
    assert turns.generation_of("m2") is None
    assert turns.generation_of(None) is None


def test_messages_are_remembered_up_to_a_bound():
    turns = Turns()
    for n in range(REMEMBERED + 1):
        generation, _ = turns.accept(f"m{n}", False, 0)
        turns.heard("complete", complete(generation), 0)

    assert turns.generation_of("m0") is None
    assert turns.generation_of("m1") == 2


def test_a_prompt_that_was_not_sent_can_be_tried_again():
    turns = Turns()
    turns.accept("m1", False, 0)

    assert told(turns.withdraw(1, 1)) == [(1, "ended", "error")]
    assert turns.withdraw(1, 1) == []
    assert turns.generation_of("m1") is None

    turns.accept(None, False, 2)
    assert told(turns.withdraw(2, 2)) == [(2, "ended", "error")]


def test_a_prompt_that_the_daemon_refuses_ends_and_may_be_tried_again():
    turns = Turns()
    turns.accept(None, False, 0)

    assert told(turns.withdraw(1, 1)) == [(1, "ended", "error")]
    assert turns.withdraw(1, 1) == []
    assert turns.delivered(1, 1) == []


def test_an_end_of_another_generation_is_not_ours():
    turns = started()

    assert turns.heard("complete", complete(7), 1) == []
    assert turns.heard("error", {"type": "error", "error": "x", "prompt_generation": 7}, 1) == []
    assert turns.open


def test_a_synthetic_end_ends_nothing():
    assert started().heard("complete", complete(None, synthetic=True), 1) == []


def test_an_end_without_a_generation_ends_the_turn_that_runs():
    assert told(started().heard("complete", complete(None), 1)) == [(1, "ended", "end_turn")]
    assert told(started().heard("error", {"type": "error", "error": "529"}, 1)) == [(1, "ended", "error")]
    assert told(started().heard("error", {"data": None, "prompt_generation": 1}, 1)) == [
        (1, "ended", "error")
    ]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("max_tokens", "max_tokens"),
        ("refusal", "refusal"),
        ("zig", "unknown"),
        (None, "unknown"),
        (5, "unknown"),
    ],
)
def test_reasons_come_from_a_closed_list(reason: object, expected: str):
    assert told(started().heard("complete", complete(1, reason), 1)) == [(1, "ended", expected)]


def test_an_end_without_data_has_an_unknown_reason():
    value = {"type": "complete", "prompt_generation": 1}

    assert told(started().heard("complete", value, 1)) == [(1, "ended", "unknown")]


def test_stragglers_after_the_end_start_nothing():
    """B72: late tool_update, context_window and message_chunk after complete."""
    turns = started()
    turns.heard("complete", complete(), 1)

    for type in ("tool_update", "context_window", "message_chunk", "complete", "error"):
        assert turns.heard(type, {"type": type}, 3) == []
    assert not turns.open
    assert turns.due() is None
    assert turns.tick(1_000).events == []


def test_a_turn_waits_while_a_decision_is_open():
    turns = started()

    assert told(turns.permissions(True, 1)) == [(1, "waiting_permission", None)]
    assert turns.permissions(True, 1) == []
    assert told(turns.permissions(False, 2)) == [(1, "running", None)]


def test_cancel_ends_by_the_daemons_word():
    turns = started()

    assert told(turns.cancel(1)) == [(1, "cancelling", None)]
    assert turns.cancel(1) == []
    assert turns.permissions(True, 1) == []
    assert told(turns.heard("complete", complete(1, "cancelled"), 2)) == [(1, "ended", "cancelled")]
    assert turns.cancel(3) == []


def test_what_ends_after_a_cancel_was_cancelled_whatever_the_agent_calls_it():
    """B74."""
    turns = started()
    turns.cancel(1)

    assert told(turns.heard("complete", complete(1, "end_turn"), 2)) == [(1, "ended", "cancelled")]


def test_cancel_that_nobody_answers_ends_after_10_s():
    turns = started()
    turns.cancel(1)

    assert turns.due() == 11
    assert turns.tick(10.9).events == []
    assert told(turns.tick(11).events) == [(1, "ended", "cancelled")]
    assert turns.heard("complete", complete(1, "cancelled"), 12) == []


def test_an_agent_that_exits_ends_every_turn_once():
    turns = started()
    turns.accept(None, True, 1)
    exit = {"type": "error", "error": "Agent process exited with code 1", "data": {"exit_code": 1}}

    assert told(turns.heard("error", exit, 2)) == [(1, "ended", "agent_exited"), (2, "ended", "agent_exited")]
    assert turns.heard("error", exit, 2) == []


def test_a_socket_lost_for_40_s_ends_the_turn():
    turns = started()
    turns.agent_lost(10)
    turns.agent_lost(20)

    assert turns.due() == 50
    assert turns.tick(49).events == []
    assert told(turns.tick(50).events) == [(1, "ended", "disconnected")]


def test_a_short_break_does_no_harm():
    turns = started()
    turns.agent_lost(10)
    turns.agent_up(15)

    assert turns.tick(60).events == []
    assert turns.open


def test_a_prompt_of_unknown_fate_is_known_by_any_sign_of_life():
    turns = Turns()
    turns.accept(None, False, 0)
    turns.unsure(1, 1)

    assert told(turns.heard("context_window", {}, 30)) == [(1, "running", None)]
    turns.unsure(1, 31)
    assert turns.tick(91).events == []


def test_a_prompt_of_unknown_fate_without_one_ends_as_unknown():
    turns = Turns()
    turns.accept(None, False, 0)
    turns.unsure(1, 1)
    turns.unsure(2, 1)

    assert turns.tick(60).events == []
    assert told(turns.tick(61).events) == [(1, "ended", "unknown")]


def test_output_that_overtakes_the_answer_to_the_prompt_shows_that_it_runs():
    turns = Turns()
    turns.accept(None, False, 0)

    assert turns.heard("session_info", {}, 1) == []
    assert told(turns.heard("message_chunk", {}, 1)) == [(1, "running", None)]
    assert turns.delivered(1, 2) == []


def test_silence_of_5_minutes_is_told_and_taken_back():
    turns = started()

    (stalled,) = turns.tick(300).events
    assert stalled == {"type": "turn", "generation": 1, "state": "running", "stalled": True}
    assert turns.tick(900).events == []
    (alive,) = turns.heard("message_chunk", {}, 901)
    assert alive == {"type": "turn", "generation": 1, "state": "running"}


def test_silence_is_asked_about_every_5_s_while_there_is_somebody_to_ask():
    turns = started()

    assert turns.due() == 5
    assert turns.tick(5) == Due([], ask=True)
    assert turns.due() == 10
    turns.heard("message_chunk", {}, 30)
    assert turns.due() == 35
    turns.agent_lost(45)
    assert turns.due() == 85
    turns.agent_up(46)
    turns.permissions(True, 46)
    assert turns.due() == 51
    turns.cancel(47)
    assert turns.due() == 57


def test_an_agent_that_is_at_work_in_silence_is_left_alone():
    turns = started()

    assert turns.asked([1], 1, True, 20, reconnected=False) == []
    assert turns.tick(299).events == []
    assert [one["stalled"] for one in turns.tick(300).events] == [True]


def test_a_turn_whose_end_got_lost_is_ended_once_the_daemon_is_not_at_work():
    turns = started()

    assert turns.asked([1], 1, False, 20, reconnected=False) == []
    assert turns.tick(22).events == []
    assert told(turns.tick(23).events) == [(1, "ended", "unknown")]


def test_a_prompt_that_may_still_be_on_its_way_is_not_taken_back():
    turns = Turns()
    turns.accept("m1", False, 0)
    turns.unsure(1, 0)

    assert turns.asked([1], 0, False, 20, reconnected=False) == []
    assert turns.generation_of("m1") == 1


def test_while_the_socket_is_not_read_silence_says_nothing():
    turns = started()
    turns.asked([1], 1, False, 1)
    turns.reading(False, 2)

    assert turns.due() is None
    assert turns.tick(1_000) == Due([])
    turns.reading(True, 1_000)
    assert turns.tick(1_002).events == []
    assert told(turns.tick(1_003).events) == [(1, "ended", "unknown")]
    turns.reading(False, 1_004)
    turns.reading(True, 1_005)
    assert not turns.open


def test_a_turn_that_waits_for_a_person_is_not_stalled():
    turns = started()
    turns.permissions(True, 1)

    assert turns.tick(10_000).events == []


def test_limits_are_knobs():
    turns = Turns(Limits(cancel=1), last=41)
    generation, _ = turns.accept(None, False, 0)
    turns.cancel(0)

    assert generation == 42
    assert turns.due() == 1


STEPS = st.sampled_from(
    [
        "prompt",
        "queue",
        "delivered",
        "unsure",
        "chunk",
        "complete",
        "error",
        "exit",
        "ask",
        "asked",
        "cancel",
        "lost",
        "up",
        "tick",
    ]
)


@given(st.lists(st.tuples(STEPS, st.integers(1, 4), st.floats(0, 100)), max_size=60))
def test_every_turn_reaches_exactly_one_end(steps: list[tuple[str, int, float]]):
    turns, now, events = Turns(), 0.0, []
    for step, generation, later in steps:
        now += later
        if step in ("prompt", "queue"):
            try:
                events += turns.accept(None, step == "queue", now)[1]
            except Refused:
                pass
        elif step == "delivered":
            events += turns.delivered(generation, now)
        elif step == "unsure":
            events += turns.unsure(generation, now)
        elif step in ("complete", "error"):
            events += turns.heard(step, complete(generation), now)
        elif step == "exit":
            events += turns.heard("error", {"data": {"exit_code": 1}}, now)
        elif step in ("ask", "asked"):
            events += turns.permissions(step == "ask", now)
        elif step == "tick":
            while (due := turns.due()) is not None and due <= now:
                events += turns.tick(now).events
        elif step == "chunk":
            events += turns.heard("message_chunk", {}, now)
        elif step == "cancel":
            events += turns.cancel(now)
        elif step == "lost":
            events += turns.agent_lost(now)
        else:
            events += turns.agent_up(now)
    events += turns.agent_lost(now)
    while (due := turns.due()) is not None:
        events += turns.tick(due).events

    ends = [event["generation"] for event in events if event["state"] == "ended"]
    accepted = [event["generation"] for event in events if event["state"] == "accepted"]
    assert sorted(ends) == sorted(set(accepted))
    assert not turns.open
    for generation in accepted:
        states = [event["state"] for event in events if event["generation"] == generation]
        assert states[0] == "accepted"
        assert states.index("ended") == len(states) - 1


def log_of(*states: tuple[int, str], message: str = "m1") -> list[dict]:
    return [
        {"type": "turn", "generation": generation, "state": state, "client_message_id": message}
        for generation, state in states
    ]


def taken_over(*states: tuple[int, str]) -> Turns:
    turns = Turns()
    turns.restore(log_of(*states), 100)
    turns.agent_up(101)
    return turns


def test_a_turn_that_another_owner_began_goes_on_and_its_message_is_known():
    turns = taken_over((1, "accepted"), (1, "running"))

    ended = turns.heard("complete", complete(1), 102)

    assert turns.last == 1
    assert turns.generation_of("m1") == 1
    assert told(ended) == [(1, "ended", "end_turn")]


def test_a_prompt_that_the_daemon_never_got_ends_and_may_be_tried_again():
    turns = taken_over((1, "accepted"))

    ended = turns.asked(turns.unsettled(), 0, False, 102)

    assert told(ended) == [(1, "ended", "error")]
    assert turns.generation_of("m1") is None


def test_a_prompt_that_the_daemon_has_runs_or_has_run():
    running, over = taken_over((1, "accepted")), taken_over((1, "accepted"))

    assert told(running.asked([1], 1, True, 102)) == [(1, "running", None)]
    assert told(over.asked([1], 1, False, 102)) == [(1, "running", None)]
    assert over.tick(104.9).events == []
    assert told(over.tick(105).events) == [(1, "ended", "unknown")]
    assert running.tick(105).events == []


def test_what_a_daemon_still_has_to_say_comes_before_the_end_that_it_lost():
    turns = taken_over((1, "accepted"), (1, "running"))
    turns.asked([1], 1, False, 102)

    turns.heard("message_chunk", {}, 104)

    assert turns.tick(105).events == []
    assert told(turns.heard("complete", complete(1), 106)) == [(1, "ended", "end_turn")]


def test_a_prompt_of_unknown_fate_that_nobody_can_be_asked_about_ends_in_time():
    turns = taken_over((1, "accepted"))

    assert told(turns.tick(160).events) == [(1, "ended", "unknown")]


def test_a_turn_whose_daemon_does_not_come_back_to_the_next_owner_ends():
    turns = Turns()
    turns.restore(log_of((1, "accepted"), (1, "running")), 100)

    assert told(turns.tick(140).events) == [(1, "ended", "disconnected")]


def test_a_cancel_of_the_last_owner_still_has_its_limit():
    turns = taken_over((1, "accepted"), (1, "running"), (1, "cancelling"))

    assert told(turns.tick(110).events) == [(1, "ended", "cancelled")]


def test_a_turn_of_another_owner_that_stays_silent_is_cancelled_and_ends():
    turns = taken_over((1, "accepted"), (1, "running"))

    assert turns.tick(399).events == []
    cancelled = turns.tick(400)
    assert (told(cancelled.events), cancelled.cancel) == ([(1, "cancelling", None)], True)
    assert told(turns.tick(410).events) == [(1, "ended", "cancelled")]


def test_a_turn_of_another_owner_that_speaks_is_one_like_any_other():
    turns = taken_over((1, "accepted"), (1, "running"))

    turns.heard("message_chunk", {}, 150)

    assert [one["stalled"] for one in turns.tick(450).events] == [True]


def test_a_turn_of_another_owner_that_the_daemon_vouches_for_is_not_cancelled():
    turns = taken_over((1, "accepted"), (1, "running"))

    turns.asked([1], 1, True, 110)

    assert [one["stalled"] for one in turns.tick(400).events] == [True]
