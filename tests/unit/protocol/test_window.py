from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol.numbering import Outgoing
from tieline_protocol.window import Window


def out(offset: int, size: int = 10) -> Outgoing:
    return Outgoing("s", b"x" * size, offset, offset)


def sent(window: Window, now: float = 0.0) -> list[str]:
    names = []
    while (following := window.next(now)) is not None:
        names.append(following[0])
        window.sent(now)
    return names


def test_batches_are_confirmed_in_order():
    window = Window()
    window.add(out(1))
    window.add(out(2))
    first, second = sent(window)

    assert window.acked(first, 7, 0.1)
    assert (window.confirmed, window.at) == (1, 7)
    assert window.acked(second, 9, 0.1)
    assert (window.confirmed, window.at) == (2, 9)
    assert window.empty
    assert window.bytes == 0
    assert window.due(0.1) is None


def test_an_acknowledgement_out_of_order_publishes_everything_again():
    window = Window()
    window.add(out(1))
    window.add(out(2))
    first, second = sent(window)

    assert not window.acked(second, 9, 0.1)

    assert window.confirmed == 0
    assert len(sent(window, 0.1)) == 2
    assert window.repeats == 1
    assert not window.acked(first, 7, 0.2)  # of the round before: forgotten
    assert window.confirmed == 0


def test_a_sequence_that_does_not_rise_is_no_confirmation():
    window = Window()
    window.add(out(1))
    (first,) = sent(window)
    window.acked(first, 7, 0)
    window.add(out(2))
    (second,) = sent(window)

    assert not window.acked(second, 7, 0)
    assert window.confirmed == 1


def test_an_error_is_tried_again_at_once_and_then_with_patience():
    window = Window()
    window.add(out(1))
    for wait in (0.0, 1.0, 2.0, 4.0, 4.0):
        (name,) = sent(window, 100.0)
        window.acked(name, None, 100.0)
        if wait:
            assert window.next(100.0) is None
            assert window.due(100.0) == 100.0 + wait
            window._hold_until = 0.0
    assert sent(window, 200.0)


def test_a_missing_acknowledgement_is_waited_for_a_little_longer_each_time():
    window = Window()
    window.add(out(1))
    sent(window, 10.0)
    assert window.due(10.0) == 11.0
    window.tick(10.9)
    assert window.next(10.9) is None
    for now, due in ((11.0, 13.0), (13.0, 17.0), (17.0, 21.0)):
        window.tick(now)
        sent(window, now)
        assert window.due(now) == due

    assert window.repeats == 3


def test_progress_makes_it_patient_anew():
    window = Window()
    window.add(out(1))
    window.add(out(2))
    sent(window, 0.0)
    window.tick(1.0)
    first, _ = sent(window, 1.0)

    window.acked(first, 1, 1.5)

    assert window.due(1.5) == 2.5


def test_acknowledgements_that_make_no_sense_are_ignored():
    window = Window()
    window.add(out(1))
    assert not window.acked("0_0", 5, 0)  # nothing was sent
    (name,) = sent(window)
    for other in ("", "x", "0_", "0_-1", "0_1", "0_zig", "1_0"):
        assert not window.acked(other, 5, 0)
    assert window.acked(name, 5, 0)
    assert not window.acked(name, 6, 0)


def test_a_reconnect_publishes_from_the_first_unconfirmed_batch():
    window = Window()
    for offset in (1, 2, 3):
        window.add(out(offset))
    names = sent(window)
    window.acked(names[0], 1, 0)

    window.again()
    following = window.next(0)

    assert following is not None
    assert following[1].first == 2
    window.again()
    assert window.repeats == 1  # nothing had been sent in between


def test_after_a_loss_half_as_many_are_in_flight_and_more_with_each_confirmation():
    """B37: whatever dropped a burst is not met with the same burst again."""
    window = Window()
    for offset in range(1, 101):
        window.add(out(offset))
    assert len(sent(window)) == 100

    window.again()
    first, *rest = sent(window)
    assert len(rest) == 49
    window.acked(first, 1, 0)
    assert len(sent(window)) == 2

    for _ in range(4):
        window.again()
        sent(window)
    assert window.repeats == 5
    window.again()
    assert len(sent(window)) == 8


def test_it_has_room_for_its_size_or_one_larger_batch_alone():
    window = Window(100)
    assert window.room(1_000)
    assert not window.room(1_000, gathered=1)
    window.add(out(1, 60))
    assert window.room(40)
    assert not window.room(41)
    assert not window.room(30, gathered=11)


@given(st.lists(st.sampled_from(["add", "send", "ack", "lose", "error", "again", "tick"]), max_size=60))
def test_whatever_happens_everything_is_stored_in_order_and_nothing_is_confirmed_that_is_not(
    steps: list[str],
):
    window, stored, flying, now, offset = Window(), [], [], 0.0, 0
    for step in [*steps, "again", *["send", "ack"] * 70]:
        now += 0.3
        if step == "add":
            offset += 1
            window.add(out(offset))
        elif step == "send" and (following := window.next(now)) is not None:
            window.sent(now)
            stored.append(following[1].first)
            flying.append((following[0], len(stored)))
        elif step in ("ack", "lose", "error") and flying:
            name, seq = flying.pop(0)
            if step != "lose":
                window.acked(name, None if step == "error" else seq, now)
        elif step == "again":
            window.again()
            flying.clear()
        elif step == "tick":
            now += 5
            window.tick(now)
        assert window.confirmed == 0 or window.confirmed in stored
    window.tick(now + 10)
    firsts = list(dict.fromkeys(stored))
    assert firsts == sorted(firsts)
    assert window.empty
    assert window.confirmed == offset
