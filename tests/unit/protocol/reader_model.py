"""A model of owners, a stream, and readers, driven by chance: what can happen to a log, all of it at once.

Owners follow each other in epochs and keep to the window; batches are published live and stored; stores, live copies
and acknowledgements are lost or late; owners publish again, crash, come back as zombies; retention discards per type;
replicas lag; heads are stale. Readers join at any time and place. `run(seed)` plays one schedule and asserts that
each reader saw every event that can be had, once and in order, and was told of everything else.

By hand: `python -m tests.unit.protocol.reader_model FIRST_SEED COUNT`.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tieline_protocol.batch import Batch, Framer, events, frame, texts
from tieline_protocol.cursor import Cursor
from tieline_protocol.joining import Opening, exists, head_of_log, read_from
from tieline_protocol.reader import Deliver, Gap, Head, Out, Reader, Reset

FRAMER = Framer("s1", "agent")
EVERYTHING = 2**62


@dataclass
class Message:
    type: str
    batch: Batch
    token: int
    owner: Owner


@dataclass
class Owner:
    """One owner: numbers, publishes within its window, confirms in order, publishes again."""

    world: World
    epoch: int
    found: tuple[int, int]
    clean: bool
    at: int  # for the opening: how far the log was read
    offset: int = 0
    confirmed: int = 0
    unconfirmed: list[tuple[str, Batch]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    pipe: deque[Message] = field(default_factory=deque)
    acks: deque[tuple[int, int]] = field(default_factory=deque)
    zombie: bool = False

    def __post_init__(self) -> None:
        self.world.pipes.append(self.pipe)
        previous, last = self.found
        text = b'{"type":"epoch","previous":%d,"last":%d,"clean":%s}' % (
            previous,
            last,
            b"true" if self.clean else b"false",
        )
        self.publish("epoch", [FRAMER.frame(Cursor(self.epoch, 1, self.at), 0, text)])

    def emit(self, type: str, count: int, size: int) -> None:
        texts = [b"%d.%d." % (self.epoch, self.offset + 1 + n) + b"x" * size for n in range(count)]
        frames = [frame(text) for text in texts]
        in_flight = sum(len(batch.frames) for _, batch in self.unconfirmed)
        if self.confirmed and (
            not self.unconfirmed or in_flight + sum(map(len, frames)) <= self.world.window
        ):
            alone = not self.unconfirmed
            self.publish(type, frames)
            if alone and self.world.rng.random() < 0.05:  # a large one beside a small one
                self.publish(
                    "a", [frame(b"%d.%d." % (self.epoch, self.offset + 1) + b"x" * self.world.window)]
                )

    def publish(self, type: str, frames: list[bytes]) -> None:
        batch = Batch(self.epoch, self.offset + 1, len(frames), self.at, b"".join(frames))
        self.offset = batch.last
        self.unconfirmed.append((type, batch))
        self.send(type, batch)

    def send(self, type: str, batch: Batch) -> None:
        token = self.world.token()
        self.tokens.append(token)
        self.pipe.append(Message(type, batch, token, self))

    def again(self) -> None:
        self.tokens.clear()
        for type, batch in self.unconfirmed:
            self.send(type, batch)

    def reconnect(self) -> None:
        """What the old connection still carries may be stored yet, behind what the new one carries."""
        self.pipe = deque()
        self.world.pipes.append(self.pipe)
        self.again()

    def acknowledged(self, token: int, seq: int) -> None:
        if token not in self.tokens:
            return
        if token == self.tokens[0] and seq > self.at:
            self.tokens.pop(0)
            _, batch = self.unconfirmed.pop(0)
            self.confirmed, self.at = batch.last, seq
            self.world.confirmed.append((self.epoch, batch.last, seq))
        else:
            self.again()

    def head(self) -> Head:
        return Head(self.epoch, self.offset, self.confirmed, self.at)


@dataclass
class Viewer:
    """The shell round a reader, one step at a time, and what its viewer was told."""

    world: World
    cursor: Cursor
    forged: bool = False
    live: deque[Batch] = field(default_factory=deque)
    heads: deque[Head] = field(default_factory=deque)
    place: tuple[int, int] = (0, 0)
    resets: int = 0
    reads: int = 0
    cursors: list[Cursor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reading: Iterator[None] | None = None
        self.join(self.cursor)

    def join(self, cursor: Cursor) -> None:
        head = self.world.head()
        if not exists(cursor, self.world.openings(), head):
            assert self.forged or self.world.forgets, "a cursor of ours was refused"
            self.resets += 1
            self.forged = False
            cursor = self.world.snapshot()
        self.reader = Reader(cursor, self.world.window)
        self.place = self.reader.position
        self.reading = None
        self.heads.clear()  # they were asked for before

    def perform(self, outs: list[Out], read_to: int) -> None:
        for out in outs:
            epoch, offset = self.place
            match out:
                case Deliver(batch):
                    if batch.epoch == epoch or offset == 0:
                        expected = offset + 1 if batch.epoch == epoch else 1
                        assert batch.first == expected, f"{self.place} then {batch.start}"
                    else:
                        assert batch.epoch > epoch, "an epoch again"
                        assert batch.first == 1, "an epoch without its opening"
                        if not self.forged:
                            self.world.ended(epoch, offset, batch)
                    for n, text in enumerate(texts(batch)):
                        told = b"%d.%d." % (batch.epoch, batch.first + n)
                        assert told in text, "other events than their offsets"
                        self.cursors.append(Cursor(batch.epoch, batch.first + n, batch.at))
                    self.place = (batch.epoch, batch.last)
                case Gap(e, first, last, reason) as gap:
                    if e != epoch:
                        assert e > epoch
                        assert offset == 0 or self.world.forgets
                        offset = 0
                    assert first == offset + 1 <= last
                    if not self.forged:
                        # What an owner stored, did not confirm and left behind at its death may stand before
                        # the `at` of a head; a cursor made of a head misses it, and a gap says so.
                        if self.resets and reason == "owner_lost":
                            last_known = min(last, self.world.confirmed_last(e))
                        else:
                            last_known = last
                        self.world.no_longer_readable(e, first, last_known, read_to)
                    self.world.seen[reason] += 1
                    self.cursors.append(gap.cursor)
                    self.place = (e, last)
                case Reset():
                    assert self.forged or self.world.forgets, "a reset without a reason"
                    self.world.seen["reset"] += 1
                    self.forged = False
                    self.resets += 1
                    self.join(self.world.snapshot())
                    return
        assert self.place == self.reader.position or self.place[1] == self.reader.offset == 0

    def hear(self, index: int) -> None:
        batch = self.live[index]
        del self.live[index]
        self.perform(self.reader.live(batch), 0)

    def learn(self) -> None:
        self.perform(self.reader.head(self.heads.popleft()), 0)

    def step(self) -> None:
        """Go on with a read, or begin one if the reader is behind."""
        if self.reading is None and self.reader.behind:
            self.reads += 1
            self.reading = self.read()
        if self.reading is not None:
            current = self.reading
            if next(current, self) is self and self.reading is current:
                self.reading = None

    def read(self) -> Iterator[None]:
        reader = self.reader
        openings = self.world.openings()
        yield
        seq = read_from(reader.cursor, openings)
        while True:
            page, up_to = self.world.page(seq)
            yield
            for seq, batch in page:
                self.perform(reader.stored(seq, batch), seq)
                if reader is not self.reader:
                    return
            if not page:
                self.perform(reader.read_done(up_to), up_to)
                return
            seq += 1


class World:
    """Everything there is, and one random step of it."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.seen: Counter[str] = Counter()
        self.window = rng.choice((30, 60, 120))
        self.keep = {
            "a": rng.choice((1, 2, 4, 99)),
            "b": rng.choice((3, 99)),
            "epoch": rng.choice((2, 99, 99)),
        }
        self.ages = rng.random() < 0.15
        self.forgets = self.keep["epoch"] < 99 or self.ages
        self.loss = rng.choice((0, 0.05, 0.3))
        self.live_loss = rng.choice((0, 0.05, 0.4))
        self.disorder = rng.choice((0, 0.1))
        self.crashes = rng.choice((0, 0.02, 0.08))
        self.zombies = rng.choice((0, 0.5, 1))
        self.lag = rng.choice((0, 3))
        self.log: list[tuple[int, str, Batch]] = []
        self.seq = 0
        self.tokens = 0
        self.pipes: list[deque[Message]] = []
        self.ingest: deque[Message] = deque()
        self.confirmed: list[tuple[int, int, int]] = []
        self.opened: list[Opening] = []  # all that were ever stored
        self.owner: Owner | None = None
        self.owners: list[Owner] = []
        self.epoch = rng.randrange(1, 50)
        self.released = False
        self.closed = False
        self.away = False  # the owner is there, but cannot be asked
        self.found: tuple[int, int] | None = None
        self.found_at = 0
        self.viewers: list[Viewer] = []

    def token(self) -> int:
        self.tokens += 1
        return self.tokens

    # The stream

    def store(self, type: str, batch: Batch) -> int:
        self.seq += self.rng.choice((1, 1, 3))  # other logs stand in the stream too
        self.log.append((self.seq, type, batch))
        if type == "epoch":
            self.opened.append(Opening(self.seq, batch.epoch))
        same = [entry for entry in self.log if entry[1] == type]
        if len(same) > self.keep.get(type, 99):
            self.log.remove(same[0])
        return self.seq

    def openings(self) -> list[Opening]:
        return [Opening(seq, batch.epoch) for seq, type, batch in self.log if type == "epoch"]

    def page(self, seq: int) -> tuple[list[tuple[int, Batch]], int]:
        """As `jetstream.read`: from a replica, and from the leader where that has nothing."""
        lag = self.rng.randrange(self.lag + 1)
        found = [(s, batch) for s, _, batch in self.log[: len(self.log) - lag] if s >= seq]
        found = found[: self.rng.randrange(1, 6)] or [(s, batch) for s, _, batch in self.log if s >= seq][:1]
        return found, self.seq

    def above(self, epoch: int) -> int:
        return min((seq for seq, e in self.opened if e > epoch), default=EVERYTHING)

    def confirmed_last(self, epoch: int) -> int:
        return max((last for e, last, _ in self.confirmed if e == epoch), default=0)

    def ended(self, epoch: int, offset: int, opening: Batch) -> None:
        """A reader leaves an epoch: all that can be had of it was read, all that is known of it was told."""
        facts: dict[str, Any] = next(events(opening)).event
        if facts["previous"] == epoch:
            assert offset >= facts["last"], "an opening's `last` was not reached"
        if facts["clean"]:
            limit = self.above(epoch)
            last = max((last for e, last, seq in self.confirmed if e == epoch and seq < limit), default=0)
            assert offset >= last, "confirmed events left out"
        self.no_longer_readable(epoch, offset + 1, EVERYTHING, EVERYTHING)

    def no_longer_readable(self, epoch: int, first: int, last: int, read_to: int) -> None:
        limit = self.above(epoch)
        for seq, _, batch in self.log:
            if batch.epoch == epoch and seq < limit and seq <= read_to:
                assert batch.last < first or batch.first > last, f"a gap over a readable event, {seq}"

    # Owners

    def head(self) -> Head | None:
        owner = self.owner
        if owner is not None and owner.confirmed and not self.away:
            return owner.head()
        if not self.log:
            return None
        seq, _, batch = self.log[-1]
        return head_of_log(seq, batch, self.openings(), closed=self.closed)

    def snapshot(self) -> Cursor:
        """Where a reader goes on after a snapshot; the start where nobody can say how far the log is."""
        head = self.head()
        return Cursor(head.epoch, head.confirmed, head.at) if head and head.confirmed else Cursor(0, 0, 0)

    def take(self) -> None:
        """A new owner: first it reads the log, some time later it publishes its opening."""
        if self.found is None:
            epoch = max((batch.epoch for *_, batch in self.log), default=0)
            limit = self.above(epoch)
            last = max((b.last for s, _, b in self.log if b.epoch == epoch and s < limit), default=0)
            if (
                self.released and epoch == self.epoch
            ):  # thousands of a dead owner's events would have to hide it
                last = self.confirmed_last(epoch)
            self.found, self.found_at = (epoch, last), self.log[-1][0] if self.log else 0
            self.epoch += self.rng.randrange(1, 4)
        else:
            self.owner = Owner(self, self.epoch, self.found, self.released, self.found_at)
            self.owners.append(self.owner)
            self.found, self.released = None, False

    def leave(self, clean: bool) -> None:
        owner = self.owner
        assert owner is not None
        if clean and not owner.unconfirmed:
            self.released = True
        elif clean:
            return
        owner.zombie = True
        if self.released:
            self.owners.remove(owner)
        elif self.rng.random() >= self.zombies:
            owner.pipe.clear()
            self.owners.remove(owner)
        self.owner = None

    # Chance

    def step(self) -> None:
        rng = self.rng
        chance = rng.random()
        if chance < 0.25:
            self.step_owner()
        elif chance < 0.5:
            self.step_wire()
        elif self.viewers:
            self.step_viewer(rng.choice(self.viewers))

    def step_owner(self) -> None:
        rng = self.rng
        if self.owner is None:
            self.take()
            return
        owner = rng.choice(self.owners) if rng.random() < 0.2 else self.owner
        chance = rng.random()
        if chance < 0.7:
            if not owner.zombie or rng.random() < 0.3:
                size = self.window if rng.random() < 0.03 else rng.randrange(4)
                owner.emit(rng.choice("aaabc"), rng.choice((1, 1, 2, 4)), size)
        elif chance < 0.8:
            owner.again()
        elif chance < 0.85:
            owner.reconnect()
        elif chance < 0.85 + self.crashes and owner is self.owner:
            self.leave(clean=rng.random() < 0.4)
        elif chance > 0.98:
            self.away = not self.away
        if self.ages and rng.random() < 0.03:
            del self.log[: rng.randrange(1, 8)]

    def step_wire(self) -> None:
        rng = self.rng
        for _ in range(3):
            pipe = rng.choice(self.pipes) if self.pipes else None
            if pipe:
                self.carry(pipe.popleft())
            if self.ingest and rng.random() < 0.7:
                self.stored(self.ingest.popleft())
            if self.owners:
                owner = rng.choice(self.owners)
                if owner.acks:
                    token, seq = owner.acks.popleft()
                    if rng.random() >= self.loss:
                        owner.acknowledged(token, seq)

    def carry(self, message: Message) -> None:
        self.ingest.append(message)
        for viewer in self.viewers:
            if self.rng.random() >= self.live_loss:
                viewer.live.append(message.batch)

    def stored(self, message: Message) -> None:
        if self.rng.random() >= self.loss:
            message.owner.acks.append((message.token, self.store(message.type, message.batch)))

    def step_viewer(self, viewer: Viewer) -> None:
        rng = self.rng
        chance = rng.random()
        if chance < 0.45 and viewer.live:
            viewer.hear(rng.randrange(len(viewer.live)) if rng.random() < self.disorder else 0)
        elif chance < 0.9:
            viewer.step()
        elif chance < 0.95 and viewer.heads:
            viewer.learn()
        elif (head := self.head()) is not None:
            viewer.heads.append(head)

    def join(self) -> None:
        """A reader comes: from the start, from where another one was, or with a cursor that it made up."""
        rng = self.rng
        cursors = [cursor for viewer in self.viewers if not viewer.forged for cursor in viewer.cursors]
        chance = rng.random()
        if chance < 0.4 or not cursors:
            self.viewers.append(Viewer(self, Cursor(0, 0, 0)))
        elif chance < 0.9:
            self.viewers.append(Viewer(self, rng.choice(cursors)))
        else:
            forged = Cursor(*(max(0, n + rng.choice((-9, -1, 0, 1, 9, 10**18))) for n in rng.choice(cursors)))
            self.viewers.append(Viewer(self, forged, forged=True))

    def settle(self) -> None:
        """No more misfortunes: every event is confirmed, every reader reads on, and all must be at the end."""
        self.loss, self.away, self.lag = 0, False, 0
        while self.owner is None:
            self.take()
        self.drain()
        if self.rng.random() < 0.3:
            self.owner.emit("session", 1, 0)
            self.drain()
            end = (self.owner.epoch, self.owner.confirmed)
            self.leave(clean=True)
            self.closed = True
        else:
            end = (self.owner.epoch, self.owner.confirmed)
        for viewer in self.viewers:
            self.finish(viewer, end)

    def drain(self) -> None:
        assert self.owner is not None
        for _ in range(100):
            for pipe in self.pipes:
                while pipe:
                    self.carry(pipe.popleft())
            while self.ingest:
                self.stored(self.ingest.popleft())
            for owner in self.owners:
                while owner.acks:
                    owner.acknowledged(*owner.acks.popleft())
            if not self.owner.unconfirmed:
                return
            self.owner.again()
        raise AssertionError("the owner never confirms")

    def finish(self, viewer: Viewer, end: tuple[int, int]) -> None:
        if self.rng.random() < 0.5:
            viewer.live.clear()
        for _ in range(4):
            while viewer.live:
                viewer.hear(0)
            while viewer.heads:
                viewer.learn()
            head = self.head()
            if head is not None:
                viewer.heads.append(head)
                viewer.learn()
            before = viewer.reads
            while viewer.reader.behind or viewer.reading is not None:
                viewer.step()
                assert viewer.reads - before < 6, "reads for ever"
            if viewer.place == end:
                break
        assert viewer.place == end, f"at {viewer.place}, not at {end}"
        head = self.head()
        assert not viewer.reader.waiting or (head is not None and not head.confirmed)
        assert viewer.reader.position == end


def run(seed: int, steps: int = 150) -> Counter[str]:
    """One schedule; what it met."""
    world = World(seed)
    world.viewers.append(Viewer(world, Cursor(0, 0, 0)))
    for _ in range(world.rng.randrange(20, steps)):
        world.step()
        if len(world.viewers) < 4 and world.rng.random() < 0.03:
            world.join()
    world.settle()
    for viewer in world.viewers:
        world.seen["delivered"] += len(viewer.cursors)
    return world.seen


def main(first: int, count: int) -> None:
    began = time.monotonic()
    total: Counter[str] = Counter()
    for seed in range(first, first + count):
        try:
            total += run(seed)
        except AssertionError as exc:
            raise AssertionError(f"seed {seed}: {exc}") from exc
    print(f"{count:,} schedules in {time.monotonic() - began:.0f} s: {dict(total)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
