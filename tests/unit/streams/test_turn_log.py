"""What the turns of a log say to whoever takes its session over."""

from __future__ import annotations

from tieline_streams.turn_log import REMEMBERED, Messages, fold


def event(generation: object, state: str, message: object = "m1", reason: str | None = None) -> dict:
    told = {"type": "turn", "generation": generation, "state": state, "client_message_id": message}
    return told if reason is None else {**told, "reason": reason}


def test_turns_without_an_end_are_open():
    log = fold([event(1, "accepted"), event(1, "ended"), event(2, "accepted"), event(2, "running"), {}])

    assert log.open == {2: event(2, "running")}
    assert (log.last, log.latest) == (2, event(2, "running"))


def test_of_two_ends_the_first_counts_and_nothing_opens_the_turn_again():
    log = fold(
        [event(1, "accepted"), event(1, "ended", reason="end_turn"), event(1, "running"), event(1, "ended")]
    )

    assert log.open == {}
    assert log.latest == event(1, "ended", reason="end_turn")


def test_a_message_keeps_its_generation_whatever_became_of_it():
    log = fold([event(1, "accepted"), event(1, "running"), event(1, "ended", reason="error")])

    assert log.messages == {"m1": 1}


def test_a_message_that_never_ran_may_be_tried_again():
    refused = [event(1, "accepted"), event(1, "ended", reason="error")]

    assert fold(refused).messages == {}
    assert fold([*refused, event(2, "accepted"), event(2, "running")]).messages == {"m1": 2}


def test_an_empty_log_says_nothing():
    log = fold([event("1", "running"), event(None, "accepted"), {"type": "turn"}])

    assert (log.open, log.last, log.messages, log.latest) == ({}, 0, {}, None)


def test_a_prompt_without_an_id_is_not_remembered():
    messages = Messages()
    messages.put(None, 1)
    messages.forget(None)

    assert messages.generation(None) is None


def test_the_newest_messages_are_remembered():
    messages = Messages()
    for number in range(REMEMBERED + 1):
        messages.put(f"m{number}", number)
    messages.forget("m2")

    assert messages.generation("m0") is None
    assert messages.generation("m1") == 1
    assert messages.generation("m2") is None
