"""Where a reader begins."""

import pytest
from tieline_protocol.batch import Batch
from tieline_protocol.cursor import Cursor
from tieline_protocol.joining import Opening, exists, head_of_log, read_from
from tieline_protocol.reader import Head

OPENINGS = [Opening(10, 3), Opening(50, 5), Opening(90, 8)]


def test_reading_goes_on_behind_what_was_confirmed():
    assert read_from(Cursor(8, 4, 95), OPENINGS) == 95
    assert read_from(Cursor(5, 4, 60), OPENINGS) == 60


def test_reading_never_begins_behind_a_newer_opening():
    """What a dead owner still stored says that it was confirmed behind that opening."""
    assert read_from(Cursor(5, 4, 120), OPENINGS) == 90
    assert read_from(Cursor(3, 4, 120), OPENINGS) == 50


def test_from_the_start_the_log_is_read_from_its_beginning():
    assert read_from(Cursor(0, 0, 0), OPENINGS) == 1
    assert read_from(Cursor(0, 0, 0), []) == 1


@pytest.mark.parametrize(
    ("cursor", "there"),
    [
        (Cursor(0, 0, 0), True),
        (Cursor(2, 1, 5), False),  # older than what is kept
        (Cursor(3, 1, 10), True),
        (Cursor(5, 999, 60), True),  # a viewer may have seen more of a dead owner than the log
        (Cursor(8, 7, 95), True),
        (Cursor(8, 8, 95), False),  # newer than the log
        (Cursor(9, 1, 99), False),
    ],
)
def test_a_cursor_is_a_place_in_the_log_or_not(cursor, there):
    assert exists(cursor, OPENINGS, Head(8, 7, 6, 97)) is there


def test_without_an_owners_word_only_the_epoch_can_be_checked():
    assert exists(Cursor(8, 99, 95), OPENINGS, None)
    assert exists(Cursor(8, 99, 95), OPENINGS, Head(8, 7, 0, 97))
    assert not exists(Cursor(8, 99, 95), [], None)


def test_an_epoch_whose_opening_was_discarded_is_known_by_its_owner():
    assert exists(Cursor(8, 7, 95), [], Head(8, 7, 7, 97))


def test_the_last_message_stands_for_the_head_where_no_owner_answers():
    last = Batch(8, 3, 2, 95, b"")

    assert head_of_log(99, last, OPENINGS, closed=True) == Head(8, 4, 4, 99, final=True)
    assert head_of_log(99, last, OPENINGS, closed=False) == Head(8, 4, 0, 99)
    assert head_of_log(99, last, [], closed=False).readable == (8, 4)


def test_a_dead_owners_last_message_says_only_that_there_is_more():
    head = head_of_log(99, Batch(5, 3, 2, 60, b""), OPENINGS, closed=True)

    assert (head.epoch, head.confirmed, head.at, head.final) == (8, 0, 99, False)
    assert head.readable > (8, 10**9)
