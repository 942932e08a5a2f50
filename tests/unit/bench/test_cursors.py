"""Whether a viewer received everything."""

from __future__ import annotations

import pytest
from tieline_protocol.cursor import Cursor

from bench.cursors import cursor, wrong


def head(text: str) -> str:
    return f'{{"type":"notification","payload":{{"session_id":"s","cursor":"{text}","time":1'


def test_the_cursor_is_read_from_the_head_of_an_event() -> None:
    assert cursor(head("7.12.3")) == Cursor(7, 12, 3)


@pytest.mark.parametrize("text", ["", '{"type":"response"}', head("seven"), head("1.2")])
def test_what_has_no_cursor_gives_none(text: str) -> None:
    assert cursor(text) is None


def test_events_that_follow_each_other_are_all_there() -> None:
    assert wrong(head("7.11.0"), head("7.20.4"), 10) is None


@pytest.mark.parametrize("last", ["7.19.4", "7.21.4"])
def test_an_event_that_is_missing_or_came_twice_is_noticed(last: str) -> None:
    assert "10 events" in str(wrong(head("7.11.0"), head(last), 10))


def test_a_new_epoch_in_the_middle_is_noticed() -> None:
    assert "two epochs" in str(wrong(head("7.11.0"), head("8.20.0"), 10))


def test_events_without_a_cursor_are_noticed() -> None:
    assert "without" in str(wrong("{}", head("8.20.0"), 10))
