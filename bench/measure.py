"""Pure: the arithmetic of the figures: in which order variants run, percentiles, ratios, spread.

Rule 1: a figure is the median of ratios, each of two things measured in the same repetition.
Rule 2: no variant always runs first: orders rotate, and every other one is reversed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure is for, and what it must reach."""

    name: str
    unit: str
    goal: float
    better: Better
    about: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure. `spread` is the range of the repetitions as a share of their median."""

    goal: Goal
    value: float
    n: int
    spread: float

    @property
    def reached(self) -> bool:
        if self.goal.better == "higher":
            return self.value >= self.goal.goal
        return self.value <= self.goal.goal


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of all values do not exceed. Raises ValueError on none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two in the middle. Raises ValueError on none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def spread(values: Sequence[float]) -> float:
    """Highest less lowest, as a share of the median."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def orders(variants: Sequence[str], repetitions: int) -> list[list[str]]:
    """For each repetition, the order in which its variants run."""
    runs = []
    for repetition in range(repetitions):
        shift = (repetition // 2) % len(variants)
        order = [*variants[shift:], *variants[:shift]]
        runs.append(order if repetition % 2 == 0 else order[::-1])
    return runs


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """One ratio for each repetition. Raises ValueError where the two do not belong together."""
    if len(above) != len(below):
        raise ValueError("a repetition without its counterpart")
    return [a / b for a, b in zip(above, below, strict=True)]


def figure(goal: Goal, values: Sequence[float]) -> Figure:
    """The figure of one value for each repetition."""
    return Figure(goal, median(values), len(values), spread(values))
