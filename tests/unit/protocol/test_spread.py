"""How long things took, in a few numbers."""

from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol.spread import Spread


def test_nothing_took_no_time() -> None:
    assert Spread().quantile(0.99) == 0


@given(st.lists(st.integers(0, 10**12), min_size=1), st.sampled_from([0.1, 0.5, 0.99, 1.0]))
def test_a_quantile_is_never_too_short_and_at_most_a_quarter_too_long(took: list[int], share: float) -> None:
    spread = Spread()
    for duration in took:
        spread.add(duration)
    ordered = sorted(took)
    exact = next(value for n, value in enumerate(ordered, 1) if n >= share * len(ordered))

    assert exact <= spread.quantile(share) <= exact * 1.25


def test_what_is_out_of_all_bounds_is_counted_too() -> None:
    spread = Spread()
    spread.add(-5)
    spread.add(2**70)

    assert (spread.total, spread.quantile(0.5)) == (2, 0)
    assert spread.quantile(1.0) > 10**18
