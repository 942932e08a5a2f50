"""The arithmetic of the figures."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.measure import Goal, figure, median, orders, percentile, ratios, spread

SPEED = Goal("speed", "x", 4, "higher", "how fast")
DELAY = Goal("delay", "x", 3, "lower", "how late")
numbers = st.lists(st.floats(0.001, 1e9), min_size=1, max_size=50)


@pytest.mark.parametrize(("share", "expected"), [(0, 1), (0.5, 50), (0.99, 99), (0.991, 100), (1, 100)])
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: int) -> None:
    assert percentile(range(100, 0, -1), share) == expected


@given(numbers, st.floats(0, 1))
def test_at_least_the_share_of_all_values_does_not_exceed_the_percentile(
    values: list[float], share: float
) -> None:
    found = percentile(values, share)

    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9


def test_the_median_of_an_even_number_lies_between_the_two_in_the_middle() -> None:
    assert median([4, 1, 3, 2]) == 2.5


def test_the_median_of_an_odd_number_is_the_one_in_the_middle() -> None:
    assert median([9, 1, 3]) == 3


@pytest.mark.parametrize("of", [median, lambda values: percentile(values, 0.5)])
def test_nothing_has_no_middle(of) -> None:
    with pytest.raises(ValueError, match="no values"):
        of([])


@given(numbers)
def test_the_median_lies_among_the_values(values: list[float]) -> None:
    assert min(values) <= median(values) <= max(values)


def test_the_spread_is_the_range_as_a_share_of_the_median() -> None:
    assert spread([8, 10, 12]) == pytest.approx(0.4)


def test_values_that_are_all_nought_have_no_spread() -> None:
    assert spread([0, 0]) == 0


def test_every_variant_runs_once_in_each_repetition() -> None:
    for order in orders(["a", "b", "c"], 12):
        assert sorted(order) == ["a", "b", "c"]


@pytest.mark.parametrize("variants", [["a", "b"], ["a", "b", "c"]])
def test_every_variant_is_first_as_often_as_any_other(variants: list[str]) -> None:
    first = Counter(order[0] for order in orders(variants, 4 * len(variants)))

    assert len(set(first.values())) == 1
    assert set(first) == set(variants)


def test_a_ratio_is_made_of_two_values_of_the_same_repetition() -> None:
    assert ratios([10, 30], [5, 10]) == [2, 3]


def test_a_repetition_without_its_counterpart_is_no_ratio() -> None:
    with pytest.raises(ValueError, match="counterpart"):
        ratios([1, 2], [1])


def test_a_figure_is_the_median_of_its_repetitions() -> None:
    made = figure(SPEED, [4, 5, 9])

    assert (made.value, made.n, made.spread) == (5, 3, 1)


@pytest.mark.parametrize(
    ("goal", "value", "reached"),
    [(SPEED, 4, True), (SPEED, 3.9, False), (DELAY, 3, True), (DELAY, 3.1, False)],
)
def test_a_goal_is_reached_from_its_better_side(goal: Goal, value: float, reached: bool) -> None:
    assert figure(goal, [value]).reached is reached
