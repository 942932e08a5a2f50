"""The judge of the fault tests finds what it must find, and nothing in what is as it should be."""

from __future__ import annotations

from typing import Any

from tests.support.oracle import Seen, agree, in_order, of_one_text, one_end_each, pieces, same_state


def log(*bodies: dict[str, Any] | str, epoch: int = 5, first: int = 1) -> list[Seen]:
    """Events one after the other; a text is a chunk of it."""
    whole = [body if isinstance(body, dict) else {"type": "chunk", "text": body} for body in bodies]
    return [Seen(epoch, first + number, body) for number, body in enumerate(whole)]


def opening(previous: int = 0, last: int = 0, clean: bool = True) -> dict[str, Any]:
    return {"type": "epoch", "previous": previous, "last": last, "clean": clean}


def turn(generation: int, state: str, **more: Any) -> dict[str, Any]:
    return {"type": "turn", "generation": generation, "state": state, **more}


GAP = {"type": "gap", "reason": "overflow"}


def test_a_log_over_two_owners_is_in_order():
    assert in_order([*log(opening(), "a", "b"), *log(opening(5, 3), "c", epoch=9)]) == []


def test_a_viewer_may_have_heard_more_than_was_stored():
    assert in_order([*log(opening(), "a", "b"), *log(opening(5, 2, False), "c", epoch=9)]) == []


def test_what_comes_twice_is_found():
    assert in_order([*log(opening(), "a"), *log("a", first=2)]) == ["(5, 2) chunk came after (5, 2)"]


def test_a_lower_epoch_after_a_higher_one_is_found():
    seen = [*log(opening()), *log(opening(5, 1), epoch=9), *log("a", first=2)]

    assert in_order(seen) == ["(5, 2) chunk came after (9, 1)"]


def test_a_hole_is_found_and_a_gap_that_tells_of_it_is_none():
    assert in_order([*log(opening()), *log("b", first=3)]) == [
        "(5, 3) chunk follows (5, 1), and no gap tells of it"
    ]
    assert in_order([*log(opening()), *log(GAP, "b", first=3)]) == []


def test_a_hole_before_an_opening_is_found():
    seen = [*log(opening(), "a"), *log(opening(5, 4, False), epoch=9)]

    assert in_order(seen) == ["(5, 2) is followed by an opening that found 4"]


def test_an_epoch_without_its_opening_is_found():
    assert in_order([*log("a")]) == ["(5, 1) is no opening but chunk"]


def test_text_is_cut_where_a_loss_is_told():
    seen = [*log(opening(), "a", "b", GAP, "c"), *log(opening(5, 5, False), "d", epoch=9)]

    assert pieces(seen, "chunk", "text") == ["ab", "c", "d"]


def test_a_gap_of_another_type_and_a_clean_opening_are_no_loss():
    seen = [*log(opening(), "a", {**GAP, "event_type": "other"}, "b"), *log(opening(5, 4), "c", epoch=9)]

    assert pieces(seen, "chunk", "text") == ["abc"]


def test_whole_text_and_text_with_told_losses_fit():
    said = "one two three four "

    assert of_one_text([said], said) == []
    assert of_one_text(["one ", "three four "], said) == []
    assert of_one_text(["one two ", "", ""], said) == []
    assert of_one_text(["", "four "], said) == []


def test_text_that_is_missing_repeated_or_turned_around_does_not_fit():
    said = "one two three four "

    for parts in (
        ["one three four "],
        ["one two three "],
        ["one two ", "two three four "],
        ["three ", "one "],
    ):
        assert of_one_text(parts, said) != []
    assert of_one_text(["two three four "], said) != []
    assert of_one_text(["one one two three four "], said) != []


def test_each_turn_has_one_end():
    good = log(
        turn(1, "accepted"), turn(1, "running"), turn(1, "ended"), turn(2, "accepted"), turn(2, "ended")
    )

    assert one_end_each(good) == []
    assert one_end_each(log(turn(1, "accepted"))) == ["turn 1 has no end"]
    assert one_end_each(log(turn(1, "ended"), turn(1, "ended"))) == ["turn 1 is ended after its end"]
    assert one_end_each(log(turn(1, "ended"), turn(1, "running"))) == ["turn 1 is running after its end"]


def test_a_message_that_runs_in_two_turns_is_found_and_one_that_was_withdrawn_may_run_later():
    def twice(*states: str, **more: Any) -> list[Seen]:
        first = [turn(1, state, client_message_id="m", **more) for state in states]
        return log(
            *first, *(turn(2, state, client_message_id="m") for state in ("accepted", "running", "ended"))
        )

    assert one_end_each(twice("accepted", "running", "ended")) == ["message m ran in 2 turns"]
    assert one_end_each(twice("accepted", "ended", reason="error")) == []


def test_viewers_that_saw_the_same_agree_and_one_may_have_been_told_of_a_gap():
    late = log(opening(), "a", "b", "c")

    assert agree(late, late) == []
    assert agree([late[0], Seen(5, 3, GAP), late[3]], late) == []


def test_a_viewer_may_have_heard_what_was_never_stored():
    late = [*log(opening(), "a"), *log(opening(5, 2, False), epoch=9)]

    assert agree([*log(opening(), "a", "b"), *log(opening(5, 2, False), epoch=9)], late) == []


def test_viewers_that_differ_are_found():
    late = log(opening(), "a", "b")

    assert agree(late[:2], late) == [
        "the live viewer stands at (5, 2), the late one at (5, 3)",
        "(5, 3) chunk is in the log and never reached the live viewer",
    ]
    assert "was" in agree(log(opening(), "x", "b"), late)[0]
    assert agree([], []) == []


def test_a_newcomer_knows_how_things_are():
    late = [
        Seen(5, 2, {"type": "turn", "n": 1}),
        Seen(5, 3, {"type": "turn", "n": 2}),
        Seen(5, 4, {"type": "x"}),
    ]

    assert same_state(late, late[1:2], ("turn", "plan")) == []
    assert same_state(late, [], ("plan",)) == []
    assert "last turn" in same_state(late, late[:1], ("turn",))[0]
    assert "last turn" in same_state(late, [], ("turn",))[0]
