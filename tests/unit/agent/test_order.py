"""The order of a log's events, from what is stored."""

import random

from tieline_agent import order
from tieline_protocol.batch import Batch, Framer
from tieline_protocol.cursor import Cursor

FRAMER = Framer("t1", "thread")


def batch(epoch, first, *names):
    frames = b"".join(
        FRAMER.frame(Cursor(epoch, first + n, 0), 0, b'{"type":"%b"}' % name.encode())
        for n, name in enumerate(names)
    )
    return Batch(epoch, first, len(names), 0, frames)


def names(*stored):
    return [event["type"] for _, event in order.events(enumerate(stored, 1))]


def test_events_stored_twice_count_once():
    assert names(batch(5, 1, "epoch"), batch(5, 2, "a", "b"), batch(5, 2, "a", "b")) == ["epoch", "a", "b"]


def test_events_stored_too_early_stand_at_their_place():
    stored = [batch(5, 1, "epoch"), batch(5, 3, "b"), batch(5, 2, "a"), batch(5, 3, "b")]

    assert names(*stored) == ["epoch", "a", "b"]


def test_what_a_dead_owner_stored_after_the_next_ones_opening_does_not_belong():
    stored = [
        batch(5, 1, "epoch"),
        batch(5, 2, "a"),
        batch(9, 1, "epoch"),
        batch(5, 3, "late"),
        batch(9, 2, "b"),
    ]

    assert names(*stored) == ["epoch", "a", "epoch", "b"]


def test_batches_may_be_given_in_any_order():
    stored = list(
        enumerate([batch(5, 1, "epoch"), batch(5, 2, "a"), batch(7, 1, "epoch"), batch(7, 2, "b")], 1)
    )
    shuffled = stored[:]
    random.Random(1).shuffle(shuffled)

    assert order.events(shuffled) == order.events(stored)
    assert [seq for seq, _ in order.events(stored)] == [1, 2, 3, 4]


def test_nothing_stored_is_no_event():
    assert order.events([]) == []
