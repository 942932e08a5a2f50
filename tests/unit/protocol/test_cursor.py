"""Cursors: opaque to clients, exact to us."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol.cursor import START, Cursor, Position
from tieline_protocol.errors import BadCursor

NUMBERS = st.integers(0, 10**19 - 1)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_a_cursor_survives_being_given_to_a_client_and_back(epoch, offset, at):
    cursor = Cursor(epoch, offset, at)

    assert Cursor.parse(str(cursor)) == cursor
    assert cursor.position == Position(epoch, offset)


@given(st.one_of(st.text(), st.none(), st.integers(), st.binary(), st.lists(st.text())))
def test_anything_else_is_refused_with_our_error(value):
    try:
        cursor = Cursor.parse(value)
    except BadCursor:
        pass
    else:
        assert str(cursor) == value


@pytest.mark.parametrize(
    "text", ["1.2", "1.2.3.4", "01.2.3", "-1.2.3", "1.2.3\n", "１.2.3", "", "1.2." + "9" * 20]
)
def test_there_is_one_spelling_of_each_cursor(text):
    with pytest.raises(BadCursor):
        Cursor.parse(text)


def test_positions_are_ordered_by_epoch_then_offset():
    assert START < Position(1, 1) < Position(1, 2) < Position(2, 1)
