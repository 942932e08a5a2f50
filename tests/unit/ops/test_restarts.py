from hypothesis import given
from hypothesis import strategies as st
from tieline_ops.restarts import BAD_USAGE, HEALTHY, MOST, TRIES, Restarts


def test_a_crash_is_followed_by_a_start_almost_at_once_and_waits_double() -> None:
    restarts = Restarts()
    restarts.ready()

    assert [restarts.ended(1, -9) for _ in range(4)] == [0.1, 0.2, 0.4, 0.8]


def test_what_ran_well_counts_as_new() -> None:
    restarts = Restarts()
    restarts.ready()
    for _ in range(9):
        restarts.ended(1, 1)
    restarts.started(100)

    assert restarts.ended(100 + HEALTHY, 1) == 0.1


def test_what_never_became_ready_is_given_up() -> None:
    restarts = Restarts()

    assert [restarts.ended(0, 1) for _ in range(TRIES)][-1] is None


def test_a_refused_command_line_is_not_tried_again() -> None:
    assert Restarts().ended(0, BAD_USAGE) is None


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_what_was_ready_once_is_always_brought_back_within_the_longest_wait(ends: list[float]) -> None:
    restarts = Restarts()
    restarts.ready()

    assert all(0 < (restarts.ended(now, BAD_USAGE) or 0) <= MOST for now in ends)
