"""What waits for one viewer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tieline_gateway.lanes import BULK, CONTROL, Lanes


def drained(lanes: Lanes) -> list[bytes]:
    out = []
    while (data := lanes.take()) is not None:
        out.append(bytes(data))
    return out


def test_answers_and_the_agent_log_go_before_shell_output() -> None:
    lanes = Lanes(100, 100)
    lanes.event(BULK, "w", b"output 1")
    lanes.event(CONTROL, "a", b"permission")
    lanes.answer(b"answer")
    lanes.event(BULK, "w", b"output 2")

    assert drained(lanes) == [b"permission", b"answer", b"output 1", b"output 2"]
    assert not lanes


def test_the_bound_is_checked_before_so_that_one_event_may_exceed_it() -> None:
    lanes = Lanes(10, 10)

    assert lanes.event(BULK, "w", b"x" * 1_000)
    assert not lanes.event(BULK, "w", b"y")
    assert lanes.event(CONTROL, "a", b"z")


def test_a_full_lane_of_events_does_not_refuse_answers() -> None:
    lanes = Lanes(1, 10)
    lanes.event(CONTROL, "a", b"x")

    assert not lanes.event(CONTROL, "a", b"y")
    assert lanes.answer(b"a" * 10)
    assert not lanes.answer(b"b")


def test_events_of_somebody_who_left_are_taken_back_and_make_room() -> None:
    lanes = Lanes(3, 10)
    lanes.event(BULK, "gone", b"xxx")
    lanes.event(CONTROL, "gone", b"xxx")
    lanes.event(CONTROL, "other", b"y") if not lanes.waiting(CONTROL) else None
    lanes.answer(b"answer")

    lanes.forget("gone")
    lanes.forget("nobody")

    assert lanes.waiting(BULK) == lanes.waiting(CONTROL) == 0
    assert lanes.event(BULK, "w", b"new")
    assert drained(lanes) == [b"answer", b"new"]


@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.just("event"),
                st.sampled_from([CONTROL, BULK]),
                st.sampled_from("ab"),
                st.binary(max_size=20),
            ),
            st.tuples(st.just("answer"), st.binary(max_size=20)),
            st.tuples(st.just("take")),
            st.tuples(st.just("forget"), st.sampled_from("ab")),
        )
    )
)
def test_the_count_of_bytes_is_always_what_waits(steps: list[tuple[object, ...]]) -> None:
    lanes = Lanes(30, 30)
    for step in steps:
        match step:
            case ("event", int() as lane, str() as owner, bytes() as data):
                lanes.event(lane, owner, data)
            case ("answer", bytes() as data):
                lanes.answer(data)
            case ("take",):
                lanes.take()
            case ("forget", str() as owner):
                lanes.forget(owner)

    waiting = lanes.bytes
    assert waiting == lanes.waiting(CONTROL) + lanes.waiting(BULK) + lanes.answer_bytes
    assert sum(map(len, drained(lanes))) == waiting
    assert lanes.bytes == 0
