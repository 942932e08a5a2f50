"""Waits between tries."""

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol.backoff import delays


def test_waits_double_up_to_the_most():
    assert list(islice(delays(lambda: 0.0, 0.25, 2), 5)) == [0.25, 0.5, 1, 2, 2]


@given(st.floats(0, 1, exclude_max=True), st.floats(0.01, 1), st.floats(1, 60))
def test_each_wait_is_cut_by_up_to_half(chance, first, most):
    for n, wait in enumerate(islice(delays(lambda: chance, first, most), 12)):
        whole = min(first * 2**n, most)
        assert whole / 2 <= wait <= whole
