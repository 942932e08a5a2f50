"""The reader rule, case by case, and by chance (reader_model.py)."""

import pytest
from tieline_protocol.batch import Batch, Framer, frame
from tieline_protocol.cursor import Cursor
from tieline_protocol.reader import Deliver, Gap, Head, Reader, Reset

from tests.unit.protocol import reader_model

FRAMER = Framer("s1", "agent")


def batch(epoch, first, last=None, at=0, size=1):
    count = (last or first) - first + 1
    return Batch(epoch, first, count, at, frame(b"x" * size) * count)


def opening(epoch, previous=0, last=0, clean=False, **other):
    text = str({"type": "epoch", "previous": previous, "last": last, "clean": clean, **other})
    text = text.replace("'", '"').replace("False", "false").replace("True", "true").replace("None", "null")
    return Batch(epoch, 1, 1, 0, FRAMER.frame(Cursor(epoch, 1, 0), 0, text.encode()))


def told(outs):
    """[(first, last)] of what is delivered, ("gap", first, last, reason), "reset"."""
    seen: list[object] = []
    for out in outs:
        match out:
            case Deliver(batch):
                seen.append((batch.first, batch.last))
            case Gap(_, first, last, reason):
                seen.append(("gap", first, last, reason))
            case Reset():
                seen.append("reset")
    return seen


def reader(epoch=5, offset=3, at=10, window=100):
    """A reader that has read its log to the end."""
    made = Reader(Cursor(epoch, offset, at), window)
    made.read_done(at)
    assert not made.behind
    return made


def test_a_new_reader_reads_the_log_first():
    new = Reader()

    assert new.behind
    assert told(new.stored(3, opening(5)) + new.stored(4, batch(5, 2, 3, at=3))) == [(1, 1), (2, 3)]
    assert new.read_done(4) == []
    assert (new.behind, new.waiting, new.cursor) == (False, False, Cursor(5, 3, 4))


def test_the_next_batch_is_taken_live_once():
    one = reader()

    assert told(one.live(batch(5, 4, 6, at=12))) == [(4, 6)]
    assert one.live(batch(5, 4, 6, at=12)) == []
    assert one.stored(13, batch(5, 4, 6, at=12)) == []
    assert (one.cursor, one.behind) == (Cursor(5, 6, 12), False)


def test_a_reader_joins_inside_a_batch():
    assert told(reader().stored(11, batch(5, 2, 6))) == [(4, 6)]


def test_copies_in_the_order_of_a_publication_that_began_again():
    """1, 3', 2, 3: what came too early is kept and delivered in its place."""
    one = Reader(Cursor(5, 0, 1))
    seen = [told(one.stored(seq, batch(5, offset))) for seq, offset in enumerate((1, 3, 2, 3), 2)]

    assert seen == [[(1, 1)], [], [(2, 2), (3, 3)], []]


def test_a_dead_owner_is_not_heard():
    one = reader()

    assert one.live(batch(4, 9)) == one.stored(12, batch(4, 9)) == []
    assert not one.behind


def test_a_new_epoch_is_never_taken_live_but_read():
    one = reader()

    assert one.live(opening(6, 5, 3)) == []
    assert one.behind
    assert told(one.stored(11, batch(5, 4)) + one.stored(12, opening(6, 5, 3))) == [(4, 4), (1, 1)]
    assert one.position == (6, 1)
    assert one.stored(13, batch(5, 5)) == []


def test_a_new_epoch_that_is_not_stored_yet_causes_one_read():
    one = reader()
    one.live(opening(6))
    one.read_done(10)
    one.live(opening(6))

    assert not one.behind
    one.live(batch(6, 2, at=12))
    assert one.behind


def test_a_hole_causes_one_read_until_more_is_confirmed():
    one = reader()
    one.live(batch(5, 5, at=10))
    assert one.behind
    one.read_done(10)
    one.live(batch(5, 6, at=10))
    assert not one.behind
    one.live(batch(5, 7, at=11))
    assert one.behind
    assert one.waiting


def test_what_was_confirmed_while_reading_is_read_too():
    one = reader()
    one.live(batch(5, 5, at=10))
    one.live(batch(5, 6, at=12))

    assert one.read_done(11) == []
    assert one.behind


def test_a_hole_is_filled_by_the_log_and_live_batches_follow():
    one = reader()
    one.live(batch(5, 5, 6))
    one.live(batch(5, 8))

    assert told(one.stored(11, batch(5, 4))) == [(4, 4), (5, 6)]
    assert told(one.live(batch(5, 7))) == [(7, 7), (8, 8)]


def test_a_second_hole_is_looked_up_as_well():
    one = reader()
    one.live(batch(5, 5))
    one.live(batch(5, 7))
    one.read_done(10)
    assert not one.behind

    assert told(one.live(batch(5, 4))) == [(4, 4), (5, 5)]
    assert one.behind


def test_early_batches_are_kept_up_to_a_window_and_the_rest_is_read():
    one = reader(window=50)
    one.live(batch(5, 5, size=40))
    one.live(batch(5, 6, size=40))

    assert told(one.live(batch(5, 4))) == [(4, 4), (5, 5)]
    assert told(one.stored(14, batch(5, 6, size=40))) == [(6, 6)]


def test_one_early_batch_may_be_larger_than_the_window():
    one = reader(window=10)
    one.live(batch(5, 5, size=40))

    assert told(one.live(batch(5, 4))) == [(4, 4), (5, 5)]


def test_a_gap_is_declared_when_a_window_follows_it():
    one = reader(window=50)
    assert one.stored(12, batch(5, 6, size=30)) == one.stored(13, batch(5, 7, size=30)) == []

    assert told(one.stored(14, batch(5, 8))) == [("gap", 4, 5, "retention"), (6, 6), (7, 7), (8, 8)]


def test_a_large_event_beside_a_small_one_is_no_reason_for_a_gap():
    one = reader(window=50)
    assert one.stored(12, batch(5, 5, size=90)) == []

    assert told(one.stored(13, batch(5, 4))) == [(4, 4), (5, 5)]


def test_what_is_missing_is_waited_for_until_the_head_says_it_was_confirmed():
    one = reader()
    one.stored(12, batch(5, 6))
    one.head(Head(5, 6, 3, 10))
    assert one.read_done(12) == []

    one.head(Head(5, 6, 6, 15))
    assert one.behind
    assert one.read_done(12) == []
    assert one.behind, "the log was not read as far as the head"
    assert told(one.read_done(15)) == [("gap", 4, 5, "retention"), (6, 6)]
    assert not one.behind


def test_what_is_in_hand_is_delivered_though_the_log_has_discarded_it():
    one = reader()
    one.live(batch(5, 5))
    one.head(Head(5, 5, 5, 15))

    assert told(one.read_done(15)) == [("gap", 4, 4, "retention"), (5, 5)]


def test_a_gap_has_the_cursor_of_its_last_event():
    one = reader(at=10)
    one.stored(20, batch(5, 6, at=19))
    one.head(Head(5, 6, 6, 20))

    gap, _ = one.read_done(20)
    assert gap.cursor == Cursor(5, 5, 10)
    assert one.cursor == Cursor(5, 6, 19)


def test_a_head_that_is_older_than_another_changes_nothing():
    one = reader()
    one.head(Head(5, 6, 6, 15))
    one.head(Head(5, 4, 4, 11))

    assert told(one.read_done(15)) == [("gap", 4, 6, "retention")]


def test_where_the_owner_is_away_nothing_is_given_up():
    one = reader()
    one.stored(12, batch(5, 5))
    one.head(Head(5, 5, 0, 12))

    assert one.behind
    assert one.read_done(12) == []
    assert (one.behind, one.waiting) == (False, True)


def test_a_closed_session_has_nothing_to_wait_for():
    one = reader()
    one.stored(12, batch(5, 6))
    one.live(batch(5, 8))
    one.head(Head(5, 5, 5, 13, final=True))

    assert told(one.read_done(13)) == [("gap", 4, 5, "retention"), (6, 6)]
    assert not one.waiting


@pytest.mark.parametrize(("clean", "reason"), [(True, "retention"), (False, "owner_lost")])
def test_an_opening_says_how_far_the_epoch_before_it_went(clean, reason):
    one = reader()
    one.stored(12, batch(5, 5))

    seen = told(one.stored(14, opening(6, 5, 7, clean)))
    assert seen == [("gap", 4, 4, reason), (5, 5), ("gap", 6, 7, reason), (1, 1)]


def test_what_stands_before_an_opening_belongs_though_its_owner_did_not_find_it():
    one = reader()
    one.stored(12, batch(5, 5))

    assert told(one.stored(14, opening(6, 5, 3))) == [("gap", 4, 4, "owner_lost"), (5, 5), (1, 1)]


def test_a_reader_that_saw_more_live_goes_on_at_the_opening():
    one = reader()
    one.live(batch(5, 4, 9))

    assert told(one.stored(14, opening(6, 5, 5))) == [(1, 1)]


def test_an_opening_that_came_late_into_the_log_opens_its_epoch_all_the_same():
    """Owner 6 stored its opening after owner 7 had read the log: owner 7 knows of epoch 5 only."""
    one = reader()
    assert told(one.stored(14, opening(6, 5, 3))) == [(1, 1)]

    assert told(one.stored(15, opening(7, 5, 3))) == [(1, 1)]


@pytest.mark.parametrize(
    "facts",
    [
        {"previous": 6, "last": 3},  # epoch 6 and its opening are gone
        {"previous": 4, "last": 3, "clean": True},  # all of this epoch is gone
        {"previous": None, "last": 3},
        {"previous": 5, "last": "x"},
    ],
)
def test_an_opening_that_does_not_follow_is_a_reset(facts):
    assert told(reader().stored(14, opening(7, **facts))) == ["reset"]


def test_a_higher_epoch_whose_opening_is_gone_is_a_reset():
    assert told(reader().stored(14, batch(6, 4))) == ["reset"]
    one = reader()
    one.head(Head(6, 9, 9, 20))
    assert one.read_done(19) == []
    assert told(one.read_done(20)) == ["reset"]


def test_from_the_start_what_was_discarded_is_a_gap():
    new = Reader()
    new.stored(30, batch(6, 4))
    new.head(Head(6, 5, 5, 31))

    assert told(new.read_done(31)) == [("gap", 1, 3, "retention"), (4, 4), ("gap", 5, 5, "retention")]


def test_from_the_start_of_a_log_of_which_nothing_is_kept():
    new = Reader()
    new.head(Head(6, 5, 5, 31))

    assert told(new.read_done(40)) == [("gap", 1, 5, "retention")]


def test_a_forged_cursor_is_found_out_by_the_owner():
    assert told(reader(offset=999).head(Head(5, 4, 4, 11))) == ["reset"]


def test_what_was_read_again_does_not_move_the_reader_back():
    one = reader(at=10)
    one.live(batch(5, 4, at=30))

    assert told(one.stored(20, batch(5, 5))) == [(5, 5)]
    assert one.at == 30
    assert one.live(batch(5, 2)) == []


def test_a_batch_that_was_overtaken_is_forgotten():
    one = reader()
    one.stored(12, batch(5, 5))
    one.stored(13, batch(5, 6))
    one.stored(13, batch(5, 6))

    assert told(one.stored(14, batch(5, 4, 5))) == [(4, 5), (6, 6)]


def test_a_broken_opening_changes_nothing():
    one = reader()
    with pytest.raises(Exception, match="frame"):
        one.stored(14, Batch(6, 1, 1, 0, b"junk"))
    assert one.position == (5, 3)


@pytest.mark.parametrize("part", range(10))
def test_whatever_happens_each_reader_has_everything_once_and_in_order(part):
    """Some of the schedules of the model; `make test-long` plays more."""
    for seed in range(part * 100, part * 100 + 100):
        reader_model.run(seed)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(8))
def test_many_schedules(part):
    seeds = range(10**6 * (part + 1), 10**6 * (part + 1) + 25_000)
    for seed in seeds:
        reader_model.run(seed)
    print(
        f"reader rule: {len(seeds):,} schedules, part {part + 1} of 8, each reader has everything once and in order"
    )
