"""Rows as tables; ages, sizes and rates as people read them."""

import re

import pytest
from tieline_ops.cli import shapes
from tieline_ops.cli.shapes import Column

COLUMNS = [
    Column("NAME", "name", most=8),
    Column("SIZE", "size", right=True),
    Column("STATE", "state", state=True),
]
ROWS = [{"name": "one", "size": 5, "state": "up"}, {"name": "a longer one", "size": 1_234, "state": None}]


def plain(text: str) -> str:
    return re.sub("\x1b\\[[0-9;]*m", "", text)


def test_columns_stand_under_their_titles() -> None:
    assert shapes.table(COLUMNS, ROWS) == [
        "NAME       SIZE  STATE",
        "one           5  up",
        "a longe…  1,234  -",
    ]


def test_wide_cuts_nothing_and_shows_all_columns() -> None:
    columns = [*COLUMNS, Column("MORE", lambda row: row["size"] * 2, wide=True)]

    assert shapes.table(columns, ROWS, wide=True)[2] == "a longer one  1,234  -      2,468"


def test_colours_change_nothing_but_the_colours() -> None:
    coloured = shapes.table(COLUMNS, ROWS, colour=True)

    assert [plain(line) for line in coloured] == shapes.table(COLUMNS, ROWS)
    assert "\x1b[32mup\x1b[0m" in coloured[1]


@pytest.mark.parametrize("width", range(1, 30))
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = shapes.table(COLUMNS, ROWS, width=width, colour=True)

    assert max(shapes.cells_wide(plain(line)) for line in lines) <= width


def test_wide_characters_and_marks_take_the_room_they_take() -> None:
    lines = shapes.table(COLUMNS, [{"name": "日本", "size": 1, "state": "e\u0301"}])

    assert lines[1].startswith("日本  ")
    assert shapes.cells_wide("日本e\u0301") == 5


def test_a_value_cannot_drive_the_terminal() -> None:
    assert "\x1b" not in "".join(
        shapes.table(COLUMNS, [{"name": "\x1b[2J\n", "size": "\x9b", "state": "\x07"}])
    )
    assert "\x1b" not in "".join(shapes.fields([("title", "\x1b]0;x\x07")]))


def test_facts_of_one_thing_stand_in_a_column() -> None:
    assert shapes.fields([("a", "up"), ("longer", None), ("on", True), ("list", ["x", "y"])]) == [
        "a       up",
        "longer  -",
        "on      yes",
        "list    x,y",
    ]
    assert shapes.fields([("a", "up, for long")], colour=True)[0].endswith("\x1b[32mup, for long\x1b[0m")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (90, "1m30s"),
        (3_661, "1h1m"),
        (90_000, "1d1h"),
        (10**6, "11d"),
    ],
)
def test_ages(seconds: float | None, text: str) -> None:
    assert shapes.age(seconds) == text


def test_what_another_clock_says_is_still_to_come_is_now() -> None:
    """B94: the clock of another machine may be ahead of ours."""
    assert shapes.age(-600) == "0s"


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "-"),
        (-1, "-"),
        (0, "0 B"),
        (1_536, "1.5 KiB"),
        (200 * 1024, "200 KiB"),
        (3 * 1024**4, "3.0 TiB"),
    ],
)
def test_sizes(amount: float | None, text: str) -> None:
    assert shapes.size(amount) == text


@pytest.mark.parametrize(("rate", "text"), [(None, "-"), (0, "0/s"), (0.25, "0.2/s"), (12_345, "12,345/s")])
def test_rates(rate: float | None, text: str) -> None:
    assert shapes.rate(rate) == text


@pytest.mark.parametrize(
    ("took", "text"),
    [(0, "-"), (5_000, "5 µs"), (1_500_000, "1.5 ms"), (25_000_000, "25 ms"), (2_500_000_000, "2.5 s")],
)
def test_durations(took: int, text: str) -> None:
    assert shapes.took(took) == text


def test_states_have_colours_and_other_words_have_none() -> None:
    assert shapes.state_style("failed") == "bad"
    assert shapes.state_style("Tuesday") == ""
