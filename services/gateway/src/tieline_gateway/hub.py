"""Pure: one followed log: how far it is, what its newest events are, and which viewers are where.

`Tip` is the gateway's own reader of the log: it decides once, for all who follow live, what comes next. `Followers`
are those who get it at once: at the tip, or ahead of it (they saw more through another gateway). Everybody else is
joining, with a reader of their own, until they meet the tip; the ring of newest events bridges what is not stored yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tieline_protocol.batch import Batch, Framer
from tieline_protocol.cursor import START, Cursor, Position
from tieline_protocol.errors import BadCursor
from tieline_protocol.joining import Opening, exists
from tieline_protocol.reader import Deliver, Head, Out, Reader, Reset

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Step:
    """What takes a viewer who is at `before` to `after`: frames as they go to the socket.

    `resume` makes a cursor of `before`. `batch` is None for a gap.
    """

    before: Position
    after: Position
    resume: int
    frames: bytes | memoryview
    count: int
    batch: Batch | None
    gap: str = ""  # why, where it is one

    def beyond(self, position: Position) -> bytes | memoryview:
        """The frames for somebody who has everything up to `position`, which lies before `after`."""
        batch = self.batch
        if batch is not None and position.epoch == batch.epoch and position.offset >= batch.first:
            return batch.after(position.offset).frames
        return self.frames


class Rebegin(Exception):  # not an error: the log is not the one that it was
    """A position does not exist any more: the reader must start from a snapshot."""


def steps(outs: Iterable[Out], before: Position, at: int, framer: Framer, now_ms: int) -> list[Step]:
    """What a reader decided, as steps; `at` is the reader's before that. Raises Rebegin."""
    done: list[Step] = []
    for out in outs:
        if isinstance(out, Reset):
            raise Rebegin
        if isinstance(out, Deliver):
            batch = out.batch
            after = batch.end
            done.append(Step(before, after, at, batch.frames, batch.count, batch))
            at = max(at, batch.at) if batch.epoch == before.epoch else batch.at
        else:
            after = out.cursor.position
            event: dict[str, object] = {
                "type": "gap",
                "reason": out.reason,
                "events": out.last - out.first + 1,
            }
            done.append(Step(before, after, at, framer.gap(out.cursor, now_ms, event), 0, None, out.reason))
        before = after
    return done


class Tip:
    """The newest position of a followed log, and the newest steps to it: the ring.

    `ring_bytes` of them are kept (or one), for those who join; `burst_bytes` while they are new, for those who could
    not take a burst as fast as it came. All share them, and they are what waits in viewers' lanes too.
    """

    def __init__(
        self,
        cursor: Cursor,
        framer: Framer,
        ring_bytes: int,
        now_ms: Callable[[], int],
        burst_bytes: int = 0,
    ) -> None:
        self.reader = Reader(cursor)
        self.position = cursor.position
        self._framer = framer
        self._ring: deque[Step] = deque()
        self._bytes = 0
        self._least = ring_bytes
        self._most = max(ring_bytes, burst_bytes)
        self._old = 0  # how many steps of the ring were there when it was last aged
        self._now_ms = now_ms
        self._at = cursor.at

    @property
    def cursor(self) -> Cursor:
        return Cursor(*self.position, self.reader.at)

    @property
    def bytes(self) -> int:
        """Of the ring."""
        return self._bytes

    def took(self, outs: list[Out]) -> list[Step]:
        """Move on by what the reader decided. Raises Rebegin."""
        at, self._at = self._at, self.reader.at
        if not outs:
            return []
        taken = steps(outs, self.position, at, self._framer, self._now_ms())
        for step in taken:
            self.position = step.after
            self._ring.append(step)
            self._bytes += len(step.frames)
        self._let_go(self._most)
        return taken

    def age(self) -> None:
        """Time has passed: what was here the last time already is not new any more."""
        if self._old:
            self._let_go(self._least, self._old)
        self._old = len(self._ring)

    def forget(self) -> None:
        """Nobody follows any more: let go of the ring at once, whatever still refers to this."""
        self._ring.clear()
        self._bytes = self._old = 0

    def _let_go(self, most: int, steps: int | None = None) -> None:
        """Forget the oldest steps above `most` bytes, no more than `steps` of them."""
        while self._bytes > most and len(self._ring) > 1 and steps != 0:
            self._bytes -= len(self._ring.popleft().frames)
            self._old = max(self._old - 1, 0)
            steps = None if steps is None else steps - 1

    def since(self, position: Position) -> list[Step] | None:
        """The steps from a position to the tip; None where the ring does not reach back so far."""
        if position >= self.position:
            return []
        if not self._ring or position < self._ring[0].before:
            return None
        return [step for step in self._ring if position < step.after]


class Followers(Generic[F]):
    """Those who get every step of the tip at once."""

    def __init__(self) -> None:
        self.live: dict[F, None] = {}  # at the tip; a dict keeps the order and leaves cheaply
        self.ahead: dict[F, Position] = {}

    def __len__(self) -> int:
        return len(self.live) + len(self.ahead)

    def joined(self, follower: F, position: Position, tip: Position) -> None:
        """Somebody has met the tip, or is beyond it."""
        if position == tip:
            self.live[follower] = None
        else:
            self.ahead[follower] = position

    def left(self, follower: F) -> bool:
        """Somebody goes, or fell behind. Whether they were here."""
        if follower in self.live:
            del self.live[follower]
            return True
        return self.ahead.pop(follower, None) is not None

    def overtaken(self, step: Step) -> list[tuple[F, bytes | memoryview]]:
        """Those ahead whom a step takes further, with what they lack of it; they are at the tip from now on."""
        met = [(who, position) for who, position in self.ahead.items() if position <= step.after]
        for who, _ in met:
            del self.ahead[who]
            self.live[who] = None
        return [(who, step.beyond(position)) for who, position in met if position < step.after]


# Where a viewer begins


@dataclass(frozen=True, slots=True)
class From:
    """Everything after a cursor."""

    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The last event of each value type, then live. `reset`: the viewer's own cursor could not be used."""

    reset: bool


@dataclass(frozen=True, slots=True)
class Now:
    """Live only."""


Beginning = From | Snapshot | Now


def asked(log: str, cursor: str | None) -> Cursor | str:
    """What a viewer asks for: a cursor, or one of the words; the log's own default. Raises BadCursor."""
    if cursor is None:
        return "snapshot" if log == "workspace" else "start"
    if log == "thread" and cursor == "snapshot":  # no event of a thread is its whole state
        return "start"
    if cursor in ("start", "snapshot", "now"):
        return cursor
    try:
        return Cursor.parse(cursor)
    except BadCursor as exc:
        raise BadCursor(f"{'cursor' if log == 'thread' else f'cursors.{log}'}: {exc.message}") from exc


def beginning(wanted: Cursor | str, openings: Sequence[Opening], head: Head | None) -> Beginning:
    """Where somebody begins. `openings`: those that are kept; `head`: None where nothing is known of the log."""
    match wanted:
        case "start":
            return From(Cursor(*START, 0))
        case "snapshot":
            return Snapshot(False)
        case "now":
            return Now()
    assert isinstance(wanted, Cursor)
    if wanted.position == START:
        return From(Cursor(*START, 0))
    return From(wanted) if exists(wanted, openings, head) else Snapshot(True)
