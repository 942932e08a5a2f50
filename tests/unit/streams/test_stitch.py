"""What of the shell's output nobody has read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tieline_streams.stitch import missing


def test_what_came_while_nobody_listened_stands_between() -> None:
    assert missing("one two three four five ", "three four five six seven", "seven eight") == ("six ", True)


def test_nothing_is_missing_where_nothing_came() -> None:
    assert missing("one two", "one two", "") == ("", True)
    assert missing("one ", "one two", "two three") == ("", True)


def test_output_that_is_not_kept_any_more_is_told() -> None:
    assert missing("one", "seven eight", "") == ("seven eight", False)


def test_ends_that_are_alike_by_chance_do_not_hide_that_something_is_gone() -> None:
    assert missing("first line, long before\r\n", "\nseven eight nine ten eleven", "") == (
        "\nseven eight nine ten eleven",
        False,
    )


def test_what_the_daemon_keeps_may_go_back_further_than_what_is_known_of_the_log() -> None:
    assert missing("line 31\nline 32\n", "line 30\nline 31\nline 32\nline 33\n", "") == ("line 33\n", True)


def test_a_flood_that_came_before_the_daemon_was_asked_is_shown_once() -> None:
    held = "".join(f"{n:06}\n" for n in range(100))

    assert missing("long before", held[-200:], held) == ("", False)
    assert missing("long before", held[-200:] + "more", held) == ("", False)


def test_the_first_output_of_all_follows_on_nothing() -> None:
    assert missing("", "$ ls", "ls") == ("$ ", True)


def test_half_a_character_at_the_beginning_is_no_difference() -> None:
    assert missing("aé one two three four", "� one two three four five", "") == (" five", True)


@given(
    before=st.integers(0, 400),
    between=st.integers(0, 200),
    after=st.integers(0, 100),
    reach=st.integers(0, 100),
    kept=st.integers(1, 600),
    read=st.integers(16, 600),
)
def test_lines_that_differ_are_joined_exactly(
    before: int, between: int, after: int, reach: int, kept: int, read: int
) -> None:
    """The daemon keeps the last `kept` characters of what there was when it was asked; of the log `read` are known."""
    text = "".join(f"{n:06}\n" for n in range(150))
    first, second = text[:before], text[before : before + between]
    third = text[before + between : before + between + after]
    buffer = (first + second + third[:reach])[-kept:]

    found, follows = missing(first[-read:], buffer, third)

    told_apart = not third or min(reach, after) >= 16  # a few characters may stand anywhere
    if follows and told_apart and len(buffer) - between - min(reach, after) >= 16:
        assert first + found + third == first + second + third
