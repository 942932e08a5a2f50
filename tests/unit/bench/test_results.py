"""The results file and the table."""

from __future__ import annotations

import json

from bench import results
from bench.measure import Goal, figure

FAST = figure(Goal("fast", "x", 4, "higher", "how fast"), [5.00049, 5.0])
BIG = figure(Goal("big", "KiB", 16, "lower", "how big"), [17.25])


def test_the_file_says_of_each_figure_what_it_is_and_what_it_must_reach() -> None:
    assert results.document([FAST, BIG]) == {
        "figures": {
            "fast": {"value": 5.0, "unit": "x", "goal": 4, "better": "higher", "n": 2, "spread": 0.0},
            "big": {"value": 17.25, "unit": "KiB", "goal": 16, "better": "lower", "n": 1, "spread": 0.0},
        }
    }


def test_the_file_is_plain_json() -> None:
    made = results.document([FAST, BIG])

    assert json.loads(json.dumps(made)) == made


def test_a_run_of_some_figures_leaves_the_others_as_they_were() -> None:
    before = {"figures": {"fast": {"value": 1}, "other": {"value": 2}}}

    after = results.document([FAST], before)["figures"]

    assert after["other"] == {"value": 2}
    assert after["fast"]["value"] == 5.0


def test_a_file_that_is_not_ours_is_written_anew() -> None:
    assert results.document([BIG], {"figures": []}) == results.document([BIG])


def test_the_table_has_a_line_for_each_figure_and_says_which_fall_short() -> None:
    head, fast, big = results.table([FAST, BIG]).split("\n")

    assert head.split() == ["figure", "value", "goal", "n", "spread"]
    assert fast.split() == ["fast", "5.00", "x", "≥", "4", "ok", "2", "0%"]
    assert big.split() == ["big", "17.25", "KiB", "≤", "16", "short", "1", "0%"]
