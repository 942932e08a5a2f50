"""Pure: the reader rule: which batches of a log follow each other, whether they come live or from the store.

At `(e, o)` a reader takes offset `o + 1` of epoch `e`, nothing else.

Rule 1: lower epochs are dropped. Nothing of a higher epoch is taken live: the log is read, and there stream order
        decides: what stands before an opening belongs, a lower epoch after it does not.
Rule 2: a batch beyond `o + 1` is kept and the log is read. An owner publishes at most one window beyond what is
        confirmed, so whatever is missing comes, if it comes, within one window of the stream.
Rule 3: what is missing becomes a gap only when it cannot come any more: the owner's head says that it was
        confirmed and the log was read beyond that point (it was discarded), or more than a window of the log
        follows it, or an opening covers it. Until then the reader waits for the owner to publish it again.

The shell calls `live`, `stored`, `read_done` and `head` with what it hears, performs what they return in order, and
reads the log from `at` whenever `behind` is true.
"""

from __future__ import annotations

from dataclasses import dataclass

from tieline_protocol.batch import Batch, events
from tieline_protocol.cursor import Cursor, Position

WINDOW = (
    1024 * 1024
)  # bytes that an owner may have published and not yet confirmed, per log (or one larger event)


@dataclass(frozen=True, slots=True)
class Head:
    """How far a log is: its newest epoch, the last offset given, the last one confirmed and its stream sequence.

    `final` means that nothing will be added in this epoch: the session is closed and nobody owns it.
    """

    epoch: int
    last: int
    confirmed: int
    at: int
    final: bool = False


@dataclass(frozen=True, slots=True)
class Deliver:
    """The next events."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets `first … last` of an epoch are gone. `last` is None where an epoch's end is not known."""

    epoch: int
    first: int
    last: int | None
    reason: str  # retention, or owner_lost where an unclean opening covers what was perhaps never stored


@dataclass(frozen=True, slots=True)
class Reset:
    """The reader's position does not exist any more: it must start from a snapshot."""


Out = Deliver | Gap | Reset


class Reader:
    """One reader of one log, at `cursor` (default: before everything that is kept)."""

    def __init__(self, cursor: Cursor = Cursor(0, 0, 0), window: int = WINDOW) -> None:
        self.epoch, self.offset, self.at = cursor
        self.behind = True
        self._window = window
        self._head: Head | None = None
        self._kept = _Kept()  # from the log, beyond a hole
        self._early = _Kept()  # live, beyond a hole: the store may not have them yet

    @property
    def position(self) -> Position:
        return Position(self.epoch, self.offset)

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.epoch, self.offset, self.at)

    @property
    def waiting(self) -> bool:
        """Whether something is known to exist that the reader does not have."""
        head = self._head
        return bool(self._kept or self._early) or (
            head is not None and (head.epoch, head.confirmed) > (self.epoch, self.offset)
        )

    def live(self, batch: Batch) -> list[Out]:
        """A batch that was just published."""
        if batch.epoch != self.epoch:
            self.behind = self.behind or batch.epoch > self.epoch
            return []
        if batch.last <= self.offset:
            return []
        out: list[Out] = []
        if batch.first <= self.offset + 1:
            self._take(batch, out)
            if self._kept or self._early:
                self._drain(out)
        else:
            self.behind = True
            if self._early.bytes + len(batch.frames) <= self._window or not self._early:
                self._early.add(batch)
        return out

    def stored(self, seq: int, batch: Batch) -> list[Out]:
        """The next message of the log, in stream order."""
        out: list[Out] = []
        if batch.epoch > self.epoch:
            if batch.first == 1:
                self._open(batch, out)
            elif self.epoch == 0:
                self._enter(batch.epoch)
            else:
                return [Reset()]
        if batch.epoch < self.epoch or batch.last <= self.offset:
            return out
        if batch.first <= self.offset + 1:
            self._take(batch, out)
            self.at = max(self.at, seq)
            self._drain(out)
            return out
        self._kept.add(batch)
        if self._kept.bytes > self._window:  # rule 3: it could only have come within a window
            self._gap(self._kept.first - 1, "retention", out)
            self._drain(out)
        return out

    def read_done(self, up_to: int) -> list[Out]:
        """The log has nothing more up to stream sequence `up_to`."""
        out: list[Out] = []
        self.behind = False
        head = self._head
        if head is None or head.epoch != self.epoch:
            self.behind = head is not None and head.epoch > self.epoch and head.at > up_to
            return out
        if up_to < head.at:
            self.behind = True
            return out
        self._drain(out)
        while self.offset < head.confirmed:
            missing = min(self._kept.first - 1, head.confirmed) if self._kept else head.confirmed
            self._gap(missing, "retention", out)
            self._drain(out)
        if head.final:
            self._early.clear()
            self._kept.clear()
        return out

    def head(self, head: Head) -> list[Out]:
        """What the owner says, or the end of the log where nobody owns it."""
        known = self._head
        if known is None or (head.epoch, head.confirmed, head.at) >= (known.epoch, known.confirmed, known.at):
            self._head = head
        if head.epoch > self.epoch or (head.epoch == self.epoch and head.confirmed > self.offset):
            self.behind = True
        return []

    def _open(self, opening: Batch, out: list[Out]) -> None:
        """A new owner: what it found of the epoch before is all there will ever be of it."""
        if self.epoch:
            facts = next(events(opening)).event
            previous, last = facts.get("previous"), facts.get("last")
            if previous == self.epoch and isinstance(last, int):
                reason = "retention" if facts.get("clean") else "owner_lost"
                self._drain(out)
                while self.offset < last:
                    self._gap(min(self._next_kept() - 1, last), reason, out)
                    self._drain(out, last)
            else:
                self._drain(out)
                out.append(Gap(self.epoch, self.offset + 1, None, "retention"))
        self._enter(opening.epoch)

    def _enter(self, epoch: int) -> None:
        self.epoch, self.offset = epoch, 0
        self._kept.clear()
        self._early.clear()

    def _next_kept(self) -> int:
        return min(
            (kept.first for kept in (self._kept, self._early) if kept),
            default=2**63,
        )

    def _take(self, batch: Batch, out: list[Out]) -> None:
        if batch.first <= self.offset:
            batch = batch.after(self.offset)
        self.offset = batch.last
        if batch.at > self.at:
            self.at = batch.at
        out.append(Deliver(batch))

    def _gap(self, last: int, reason: str, out: list[Out]) -> None:
        if last > self.offset:
            out.append(Gap(self.epoch, self.offset + 1, last, reason))
            self.offset = last

    def _drain(self, out: list[Out], last: int | None = None) -> None:
        """Take what was kept and now follows; up to `last` only, where an opening says that there was no more."""
        while self._kept or self._early:
            batch = self._kept.pop(self.offset) or self._early.pop(self.offset)
            if batch is None or (last is not None and batch.first > last):
                return
            self._take(batch, out)


class _Kept:
    """Batches beyond a hole, by first offset. Publishing again repeats the same batches, so firsts are unique."""

    def __init__(self) -> None:
        self._batches: dict[int, Batch] = {}
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def first(self) -> int:
        return min(self._batches)

    def add(self, batch: Batch) -> None:
        if batch.first not in self._batches:
            self._batches[batch.first] = batch
            self.bytes += len(batch.frames)

    def pop(self, offset: int) -> Batch | None:
        """The batch that follows `offset`, if it is here; those that do not reach beyond it are forgotten."""
        for first in sorted(self._batches):
            batch = self._batches[first]
            if first > offset + 1:
                return None
            del self._batches[first]
            self.bytes -= len(batch.frames)
            if batch.last > offset:
                return batch
        return None

    def clear(self) -> None:
        self._batches.clear()
        self.bytes = 0
