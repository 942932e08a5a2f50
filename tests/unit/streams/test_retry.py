"""B80: attempts that never reset, or reset too often."""

from __future__ import annotations

from tieline_streams.retry import Again, Retry


def retry() -> Retry:
    return Retry(lambda: 0.0)


def test_five_attempts_with_growing_waits_then_down_once_then_silence():
    """B80 (c): a daemon that refuses for ever."""
    attempts = retry()
    said, waits = [], []
    for n in range(8):
        said.append(attempts.dialling())
        waits.append(attempts.lost(float(n)))

    assert said == [True] * 5 + [False] * 3
    assert waits == [
        Again(0.25, "waiting"),
        Again(0.5, "waiting"),
        Again(1.0, "waiting"),
        Again(2.0, "waiting"),
        Again(5.0, "down"),
        Again(5.0, None),
        Again(5.0, None),
        Again(5.0, None),
    ]


def test_waits_are_cut_by_up_to_half():
    attempts = Retry(lambda: 0.999)
    attempts.dialling()

    assert 0.125 <= attempts.lost(0).seconds < 0.13


def test_a_connection_that_dies_at_once_counts_as_a_failed_attempt():
    """B80 (b): accepted and closed at once, for ever."""
    attempts = retry()
    states = []
    for n in range(7):
        attempts.dialling()
        if attempts.up(float(n)) == 0:
            attempts.said_up()
            states.append("up")
        states.append(attempts.lost(float(n)).state)

    assert states == ["up", "waiting"] * 4 + ["up", "down", None, None]


def test_drops_over_a_day_do_not_use_the_attempts_up():
    """B80 (a): 30 s of health start the count anew, and the next dial is immediate."""
    attempts = retry()
    for n in range(8):
        attempts.dialling()
        attempts.up(n * 1_000.0)
        assert attempts.lost(n * 1_000.0 + 30) == Again(0.0, "waiting")


def test_coming_back_after_down_is_said_once_it_lasts_and_down_can_be_said_again():
    """B80 (d)."""
    attempts = retry()
    for _ in range(6):
        attempts.dialling()
        attempts.lost(0)
    attempts.dialling()

    assert attempts.up(10) == 2.0
    attempts.said_up()
    assert attempts.lost(15) == Again(5.0, "down")


def test_a_daemon_whose_connections_die_of_what_it_sends_is_given_up():
    retry = Retry(lambda: 0)
    given_up = []
    for attempt in range(5):
        retry.up(attempt)
        retry.lost(attempt + 1)
        given_up.append(retry.offended())

    assert given_up == [False, False, False, False, True]


def test_a_connection_that_lived_long_makes_up_for_earlier_ones():
    retry = Retry(lambda: 0)
    for _ in range(4):
        retry.up(0)
        retry.lost(1)
        retry.offended()
    retry.up(0)
    retry.lost(30)

    assert not retry.offended()
