"""One followed log: what comes next, for whom, from where."""

from __future__ import annotations

import random

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_gateway.hub import (
    Followers,
    From,
    Now,
    Rebegin,
    Snapshot,
    Step,
    Tip,
    asked,
    beginning,
    steps,
)
from tieline_protocol import batch as batches
from tieline_protocol.batch import Batch, Framer
from tieline_protocol.cursor import Cursor, Position
from tieline_protocol.errors import BadCursor
from tieline_protocol.joining import Opening
from tieline_protocol.reader import Deliver, Gap, Head, Reset

FRAMER = Framer("s1", "agent")
OPENING = b'{"type":"epoch","previous":5,"last":%d,"clean":true}'


def made(epoch: int, first: int, count: int = 1, at: int = 0, event: bytes = b'{"type":"x"}') -> Batch:
    frames = b"".join(FRAMER.frame(Cursor(epoch, first + n, at), 0, event) for n in range(count))
    return Batch(epoch, first, count, at, frames)


def tip(offset: int = 1, ring: int = 10_000) -> Tip:
    return Tip(Cursor(5, offset, 7), FRAMER, ring, lambda: 99)


def offsets(frames: bytes | memoryview) -> list[int]:
    count = bytes(frames).count(b'"cursor"')
    texts = batches.texts(Batch(1, 1, count, 0, frames))
    return [Cursor.parse(orjson.loads(text)["payload"]["cursor"]).offset for text in texts]


def test_what_is_heard_in_order_moves_the_tip() -> None:
    log = tip()

    taken = log.took(log.reader.live(made(5, 2, 3, at=8)))

    assert [(s.before, s.after, s.resume, s.count) for s in taken] == [(Position(5, 1), Position(5, 4), 7, 3)]
    assert log.cursor == Cursor(5, 4, 8)


def test_nothing_decided_moves_nothing() -> None:
    log = tip()

    assert log.took(log.reader.live(made(5, 9))) == []
    assert log.position == Position(5, 1)


def test_a_gap_is_told_with_the_cursor_of_its_last_offset() -> None:
    [gap] = steps([Gap(5, 2, 4, "retention", 8)], Position(5, 1), 7, FRAMER, 99)

    [text] = batches.texts(Batch(1, 1, 1, 0, gap.frames))
    payload = orjson.loads(text)["payload"]
    assert (gap.before, gap.after, gap.batch) == (Position(5, 1), Position(5, 4), None)
    assert payload["cursor"] == "5.4.8"
    assert payload["time"] == 99
    assert payload["event"] == {"type": "gap", "reason": "retention", "events": 3}


def test_the_sequence_to_resume_from_is_that_of_the_epoch() -> None:
    outs = [
        Deliver(made(5, 2, at=9)),
        Deliver(made(5, 3, at=8)),
        Deliver(made(6, 1, at=4)),
        Deliver(made(6, 2, at=5)),
    ]

    taken = steps(outs, Position(5, 1), 7, FRAMER, 0)

    assert [s.resume for s in taken] == [7, 9, 9, 4]


def test_a_position_that_is_gone_means_to_begin_anew() -> None:
    with pytest.raises(Rebegin):
        steps([Reset()], Position(5, 1), 7, FRAMER, 0)


def test_the_ring_bridges_to_the_tip_from_wherever_it_reaches_back() -> None:
    log = tip()
    for first in (2, 5, 8):
        log.took(log.reader.live(made(5, first, 3)))

    assert log.since(Position(5, 10)) == []
    assert log.since(Position(5, 11)) == []
    assert [s.after.offset for s in log.since(Position(5, 4)) or []] == [7, 10]
    [inside, _] = log.since(Position(5, 5)) or []
    assert offsets(inside.beyond(Position(5, 5))) == [6, 7]
    assert offsets(inside.beyond(Position(5, 4))) == [5, 6, 7]
    assert log.since(Position(5, 0)) is None
    assert tip().since(Position(5, 0)) is None


def test_the_ring_forgets_the_oldest_and_keeps_at_least_one() -> None:
    log = tip(ring=1)
    for first in (2, 5):
        log.took(log.reader.live(made(5, first, 3)))

    assert log.since(Position(5, 1)) is None
    assert len(log.since(Position(5, 4)) or []) == 1


def test_a_burst_is_kept_while_it_is_new() -> None:
    log = Tip(Cursor(5, 1, 7), FRAMER, 1, lambda: 99, burst_bytes=10_000)
    log.age()
    for first in (2, 5):
        log.took(log.reader.live(made(5, first, 3)))
    log.age()
    log.took(log.reader.live(made(5, 8, 3)))

    assert len(log.since(Position(5, 1)) or []) == 3
    log.age()
    assert [s.after.offset for s in log.since(Position(5, 7)) or []] == [10]
    assert log.since(Position(5, 4)) is None


def test_a_viewer_at_the_tip_is_live_and_one_beyond_it_waits_for_it() -> None:
    followers: Followers[str] = Followers()
    followers.joined("ada", Position(5, 4), Position(5, 4))
    followers.joined("bob", Position(5, 6), Position(5, 4))

    assert (list(followers.live), list(followers.ahead), len(followers)) == (["ada"], ["bob"], 2)
    assert followers.left("ada")
    assert followers.left("bob")
    assert not followers.left("bob")


def test_one_ahead_gets_only_what_it_lacks_once_the_tip_overtakes_it() -> None:
    followers: Followers[str] = Followers()
    for who, offset in (("far", 9), ("inside", 5), ("exactly", 6)):
        followers.joined(who, Position(5, offset), Position(5, 3))
    step = Step(Position(5, 3), Position(5, 6), 0, made(5, 4, 3).frames, 3, made(5, 4, 3))

    [(who, rest)] = followers.overtaken(step)

    assert (who, offsets(rest)) == ("inside", [6])
    assert set(followers.live) == {"inside", "exactly"}
    assert set(followers.ahead) == {"far"}


def test_one_ahead_in_an_epoch_that_ended_gets_the_opening_whole() -> None:
    followers: Followers[str] = Followers()
    followers.joined("saw more", Position(5, 50), Position(5, 48))
    opening = made(6, 1)

    [(_, rest)] = followers.overtaken(Step(Position(5, 48), Position(6, 1), 0, opening.frames, 1, opening))

    assert offsets(rest) == [1]


@given(st.integers(0, 10_000))
def test_whenever_somebody_joins_they_see_each_event_once(seed: int) -> None:
    rng = random.Random(seed)
    log, followers, seen = tip(ring=rng.choice((1, 500, 10_000))), Followers[int](), dict[int, list[int]]()
    begins: dict[int, int] = {}

    def fan_out(step: Step) -> None:
        for who in followers.live:
            seen[who] += offsets(step.frames)
        for who, rest in followers.overtaken(step):
            seen[who] += offsets(rest)

    last = 1
    for who in range(20):
        if rng.random() < 0.7:
            count = rng.randrange(1, 4)
            for step in log.took(log.reader.live(made(5, last + 1, count))):
                fan_out(step)
            last += count
        position = Position(5, rng.randrange(1, last + 4))
        bridge = log.since(position)
        if bridge is not None:
            begins[who], seen[who] = position.offset, []
            for step in bridge:
                seen[who] += offsets(step.beyond(position))
                position = step.after
            followers.joined(who, position, log.position)
    for step in log.took(log.reader.live(made(5, last + 1, 5))):
        fan_out(step)

    for who, begin in begins.items():
        assert seen[who] == list(range(begin + 1, last + 6))


def test_what_is_asked_for_is_a_word_or_a_cursor_or_the_logs_default() -> None:
    assert asked("agent", None) == "start"
    assert asked("workspace", None) == "snapshot"
    assert asked("agent", "now") == "now"
    assert asked("agent", "5.1.2") == Cursor(5, 1, 2)
    with pytest.raises(BadCursor, match=r"cursors\.agent"):
        asked("agent", "yesterday")


HEAD = Head(9, 50, 40, 100)
OPENINGS = [Opening(3, 5), Opening(60, 9)]


@pytest.mark.parametrize(
    ("wanted", "begin"),
    [
        ("start", From(Cursor(0, 0, 0))),
        ("snapshot", Snapshot(False)),
        ("now", Now()),
        (Cursor(0, 0, 70), From(Cursor(0, 0, 0))),
        (Cursor(9, 45, 90), From(Cursor(9, 45, 90))),
        (Cursor(5, 500, 50), From(Cursor(5, 500, 50))),
        (Cursor(9, 51, 90), Snapshot(True)),
        (Cursor(10, 1, 90), Snapshot(True)),
        (Cursor(4, 1, 1), Snapshot(True)),
    ],
)
def test_where_a_viewer_begins(wanted: Cursor | str, begin: object) -> None:
    assert beginning(wanted, OPENINGS, HEAD) == begin
