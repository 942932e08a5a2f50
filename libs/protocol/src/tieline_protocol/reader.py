"""Pure: the reader rule: which batches of a log follow each other, whether they come live or from the store.

At `(e, o)` a reader takes offset `o + 1` of epoch `e`, nothing else.

Rule 1: lower epochs are dropped. Nothing of a higher epoch is taken live: the log is read, and there stream order
        decides: what stands before an opening belongs, a lower epoch after it does not.
Rule 2: a batch beyond `o + 1` is kept and the log is read. An owner publishes at most one window beyond what is
        confirmed, so whatever is missing comes, if it comes, within one window of the stream.
Rule 3: what is missing becomes a gap only when it cannot come any more: the head says that it was confirmed and the
        log was read beyond that point (it was discarded), or more than a window of the log follows it, or an
        opening covers it. Until then the reader waits for the owner to publish it again.

The shell calls `live`, `stored`, `read_done` and `head` with what it hears and performs what they return, in order.
Whenever `behind` is true it reads the log to its end, from where `joining.read_from` says.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from tieline_protocol.batch import Batch, events
from tieline_protocol.cursor import Cursor, Position

WINDOW = 1024 * 1024  # bytes of frames that an owner may have in flight, per log (or one larger event alone)


@dataclass(frozen=True, slots=True)
class Head:
    """How far a log is: its newest epoch, the last offset given, the last one confirmed and its stream sequence.

    Where no owner answers it is made of the log's last message: `final` if the session is closed, so that nothing
    will be added; else `confirmed` is 0, since the owner may only be out of reach and publish again what is missing.
    """

    epoch: int
    last: int
    confirmed: int
    at: int
    final: bool = False

    @property
    def readable(self) -> Position:
        """How far the log can certainly be read, if not discarded."""
        return Position(self.epoch, self.confirmed or self.last)


@dataclass(frozen=True, slots=True)
class Deliver:
    """The next events."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets `first … last` of an epoch are gone."""

    epoch: int
    first: int
    last: int
    reason: str  # retention, or owner_lost where an unclean opening covers what was perhaps never stored
    at: int = 0

    @property
    def cursor(self) -> Cursor:
        """That of the event which tells of the gap (the reader's own may be further by then)."""
        return Cursor(self.epoch, self.last, self.at)


@dataclass(frozen=True, slots=True)
class Reset:
    """The reader's position does not exist any more: it must start from a snapshot, with a new reader."""


Out = Deliver | Gap | Reset


class Reader:
    """One reader of one log, at `cursor` (default: before everything that is kept)."""

    def __init__(self, cursor: Cursor = Cursor(0, 0, 0), window: int = WINDOW) -> None:
        self.epoch, self.offset, self.at = cursor
        self.behind = True
        self._joined = cursor
        self._window = window
        self._head: Head | None = None
        self._kept = _Kept()  # from the log, beyond a hole
        self._early = _Kept()  # live, beyond a hole: the store may not have them yet
        # So that each reason to read causes one read, not one for each batch that comes meanwhile:
        self._read_to = 0  # the log was read up to here
        self._known = 0  # the log certainly goes up to here
        self._noticed = Position(0, 0)  # the newest hole or epoch that was the reason of a read

    @property
    def position(self) -> Position:
        return Position(self.epoch, self.offset)

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.epoch, self.offset, self.at)

    @property
    def waiting(self) -> bool:
        """Whether something is known to exist that the reader does not have."""
        return bool(self._kept or self._early) or (
            self._head is not None and self._head.readable > self.position
        )

    def live(self, batch: Batch) -> list[Out]:
        """A batch that was just published."""
        out: list[Out] = []
        if (batch.epoch, batch.last) <= (self.epoch, self.offset):
            return out
        if batch.epoch > self.epoch:
            self._look(Position(batch.epoch, 0), batch.at)
        elif batch.first <= self.offset + 1:
            self._take(batch, out)
            self._drain(out)
        else:
            self._look(self.position, batch.at)
            if not self._early or self._early.bytes + len(batch.frames) <= self._window:
                self._early.add(batch)
        return out

    def stored(self, seq: int, batch: Batch) -> list[Out]:
        """The next message of the log, in stream order."""
        out: list[Out] = []
        if batch.epoch > self.epoch:
            if batch.first == 1:
                if not self._close(batch, out):
                    return [Reset()]
            elif self.offset:
                return [Reset()]
            self._enter(batch.epoch, seq)
        if (batch.epoch, batch.last) <= (self.epoch, self.offset):
            return out
        if batch.first <= self.offset + 1:
            self._take(batch, out)
            self.at = max(self.at, seq)
        else:
            if self._kept.bytes > self._window and batch.first > self._kept.last:
                # Rule 3. Before the new one is counted, since an owner may send one large event beside a small one.
                self._gap(self._kept.first - 1, "retention", out)
            self._kept.add(batch)
        self._drain(out)
        return out

    def read_done(self, up_to: int) -> list[Out]:
        """The log has nothing more up to stream sequence `up_to`."""
        out: list[Out] = []
        self._read_to = max(self._read_to, up_to)
        head = self._head
        if head is not None and head.confirmed and head.at <= up_to:
            if head.epoch > self.epoch:  # its opening was discarded
                if self.offset:
                    return [Reset()]
                self._enter(head.epoch, self.at)
            if head.epoch == self.epoch:
                last = max(head.confirmed, self._kept.last) if head.final else head.confirmed
                self._fill(last, "retention", out)
                if head.final:
                    self._early.clear()
        self.behind = self._known > up_to
        return out

    def head(self, head: Head) -> list[Out]:
        """What the owner says, or the end of the log where nobody owns it; asked for after the reader was made."""
        if head.confirmed and head.epoch == self._joined.epoch and head.last < self._joined.offset:
            return [Reset()]  # the cursor was forged
        known = self._head
        if known is None or (head.epoch, head.confirmed, head.at) >= (known.epoch, known.confirmed, known.at):
            self._head = head
        if head.readable > self.position:
            self.behind = True
            self._known = max(self._known, head.at)
        return []

    def _look(self, reason: Position, known: int) -> None:
        """Read the log: once for each reason, and whenever more of it is confirmed than was read."""
        self._known = max(self._known, known)
        if reason > self._noticed or known > self._read_to:
            self._noticed = max(self._noticed, reason)
            self.behind = True

    def _close(self, opening: Batch, out: list[Out]) -> bool:
        """A new owner: what stands before its opening is all there will ever be. False: epochs between are gone."""
        if not self.epoch:
            return True
        facts = next(events(opening)).event
        previous, last, clean = facts.get("previous"), facts.get("last"), facts.get("clean")
        if not isinstance(previous, int) or not isinstance(last, int) or previous > self.epoch:
            return False
        if previous < self.epoch and clean:
            return False
        # A lower `previous`: the opening of this epoch was stored after the new owner had read the log.
        end = max(self._kept.last, last if previous == self.epoch else 0)
        self._fill(end, "retention" if clean else "owner_lost", out)
        return True

    def _enter(self, epoch: int, at: int) -> None:
        self.epoch, self.offset, self.at = epoch, 0, at
        self._kept.clear()
        self._early.clear()

    def _take(self, batch: Batch, out: list[Out]) -> None:
        if batch.first <= self.offset:
            batch = batch.after(self.offset)
        self.offset = batch.last
        self.at = max(self.at, batch.at)
        out.append(Deliver(batch))

    def _gap(self, last: int, reason: str, out: list[Out]) -> None:
        out.append(Gap(self.epoch, self.offset + 1, last, reason, self.at))
        self.offset = last

    def _fill(self, last: int, reason: str, out: list[Out]) -> None:
        """Go on to `last`: with what was kept, and gaps for what is missing."""
        self._drain(out)
        while self.offset < last:
            self._gap(min(self._kept.first - 1, self._early.first - 1, last), reason, out)
            self._drain(out)

    def _drain(self, out: list[Out]) -> None:
        """Take what was kept and now follows."""
        while self._kept or self._early:
            batch = self._kept.pop(self.offset) or self._early.pop(self.offset)
            if batch is None:
                if self._kept or self._early:
                    self._look(self.position, 0)
                return
            self._take(batch, out)


class _Kept:
    """Batches beyond a hole, by first offset. Publishing again repeats the same batches, so firsts are unique."""

    def __init__(self) -> None:
        self._batches: dict[int, Batch] = {}
        self._firsts: list[int] = []  # a heap
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def first(self) -> int:
        """The first offset that is here; beyond everything where none is."""
        return self._firsts[0] if self._firsts else 2**64

    @property
    def last(self) -> int:
        """The last offset that is here; 0 where none is."""
        return max((batch.last for batch in self._batches.values()), default=0)

    def add(self, batch: Batch) -> None:
        if batch.first not in self._batches:
            self._batches[batch.first] = batch
            heapq.heappush(self._firsts, batch.first)
            self.bytes += len(batch.frames)

    def pop(self, offset: int) -> Batch | None:
        """The batch that follows `offset`, if it is here; those that do not reach beyond it are forgotten."""
        while self.first <= offset + 1:
            batch = self._batches.pop(heapq.heappop(self._firsts))
            self.bytes -= len(batch.frames)
            if batch.last > offset:
                return batch
        return None

    def clear(self) -> None:
        self._batches.clear()
        self._firsts.clear()
        self.bytes = 0
