"""The pure parts of an event's way, joined by a wire in memory that drops, repeats and delays.

A peer's events are numbered and kept in a window by streams, cross a wire to the store and to the gateway, where a
tip reads them and viewers follow. Whatever the wire does, each viewer's bytes are the peer's events, once, in order.
"""

from __future__ import annotations

import json
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st
from tieline_gateway.hub import Followers, Tip, steps
from tieline_protocol import batch as batches
from tieline_protocol.batch import Batch, Framer
from tieline_protocol.cursor import Cursor, Position
from tieline_protocol.joining import Opening, head_of_log, read_from
from tieline_protocol.numbering import Numbering
from tieline_protocol.reader import Head, Out, Reader
from tieline_protocol.window import Window
from websockets.protocol import CLIENT, Protocol, State

FRAMER = Framer("s1", "agent")


class Owner:
    """Streams, as far as one log goes."""

    def __init__(self, epoch: int, previous: int, last: int) -> None:
        self.numbering = Numbering("ada", "s1", "agent", epoch)
        self.window = Window()
        self.waiting: deque[tuple[str, bytes]] = deque()
        self.window.add(self.numbering.opening(previous, last, False, 0))

    def head(self) -> Head:
        return Head(self.numbering.epoch, self.numbering.last, self.window.confirmed, self.window.at)

    def publish(self, now: float) -> list[tuple[str, bytes]]:
        """What goes to the wire now: (name, batch)."""
        self.window.tick(now)
        while self.waiting and self.window.confirmed:
            type, event = self.waiting.popleft()
            for made in self.numbering.received(type, [event], 0):
                self.window.add(made)
        for made in self.numbering.flush():
            self.window.add(made)
        out = []
        while (following := self.window.next(now)) is not None:
            name, made = following
            self.window.sent(now)
            out.append((name, made.data))
        return out

    def acked(self, name: str, seq: int, now: float) -> None:
        self.window.acked(name, seq, now)
        self.numbering.at = self.window.at


class Viewer:
    """A browser: a stock WebSocket client at the end of the gateway's bytes; it comes back with its last cursor."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []
        self.cursor = Cursor(0, 0, 0)
        self.connected()

    def connected(self) -> None:
        self.client = Protocol(CLIENT, state=State.OPEN, max_size=None)

    def write(self, frames: bytes | memoryview) -> None:
        self.client.receive_data(bytes(frames))
        for frame in self.client.events_received():
            payload = json.loads(bytes(frame.data))["payload"]
            self.cursor = Cursor.parse(payload["cursor"])
            if payload["event"]["type"] != "epoch":
                self.events.append((payload["event"]["type"], payload["event"].get("n")))


class System:
    """One owner, one log, one gateway, one wire."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[tuple[int, Batch]] = []
        self.sent: list[int] = []
        self.wire: deque[tuple[str, bytes]] = deque()
        self.acks: deque[tuple[str, int]] = deque()
        self.owner = Owner(1, 0, 0)
        self.tip = Tip(Cursor(0, 0, 0), FRAMER, 4096, lambda: 0)
        self.followers: Followers[Viewer] = Followers()
        self.viewers = [Viewer(), Viewer()]
        self.begin()

    # Facts

    def begin(self) -> None:
        """The opening is stored and confirmed."""
        self.pass_time(0)
        self.carry(stored=True, heard=True, again=False)
        self.acknowledge(arrives=True)

    def peer(self, types: list[str]) -> None:
        for type in types:
            self.sent.append(len(self.sent))
            event = json.dumps({"type": type, "n": self.sent[-1]}).encode()
            self.owner.waiting.append((type, event))
        self.pass_time(0)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.wire.extend(self.owner.publish(self.now))

    def carry(self, stored: bool, heard: bool, again: bool) -> None:
        """One message crosses the wire, or does not."""
        if not self.wire:
            return
        name, data = self.wire[0] if again else self.wire.popleft()
        if stored:
            self.log.append((len(self.log) + 1, batches.decode(data)))
            self.acks.append((name, len(self.log)))
        if heard:
            self.perform(self.tip.reader.live(batches.decode(data)))

    def acknowledge(self, arrives: bool) -> None:
        if self.acks:
            name, seq = self.acks.popleft()
            if arrives:
                self.owner.acked(name, seq, self.now)

    def reconnect(self) -> None:
        self.wire.clear()
        self.acks.clear()
        self.owner.window.again()

    def replace_owner(self) -> None:
        """The owner dies; what it had not stored is lost, and so are what the peer said and it had not published."""
        last = max((batch.end for _, batch in self.log), default=Position(0, 0))
        self.wire.clear()
        self.acks.clear()
        self.owner = Owner(self.owner.numbering.epoch + 1, last.epoch, last.offset)

    # The gateway

    def openings(self) -> list[Opening]:
        return [Opening(seq, batch.epoch) for seq, batch in self.log if batch.first == 1]

    def read(self, reader: Reader) -> list[Out]:
        outs: list[Out] = []
        for seq, batch in self.log[read_from(reader.cursor, self.openings()) - 1 :]:
            outs += reader.stored(seq, batch)
        return outs + reader.read_done(len(self.log))

    def look(self, owner_answers: bool) -> None:
        """The gateway asks how far the log is and reads on."""
        head = self.owner.head()
        if not (owner_answers and head.confirmed):
            if not self.log:
                return
            head = head_of_log(*self.log[-1], self.openings(), closed=False)
        self.tip.reader.head(head)
        if self.tip.reader.behind:
            self.perform(self.read(self.tip.reader))

    def perform(self, outs: list[Out]) -> None:
        for step in self.tip.took(outs):
            for viewer in self.followers.live:
                viewer.write(step.frames)
            for viewer, rest in self.followers.overtaken(step):
                viewer.write(rest)

    def join(self, number: int) -> None:
        """A viewer (re)connects with its last cursor: it reads the log, then crosses to the tip."""
        viewer = self.viewers[number]
        self.followers.left(viewer)
        viewer.connected()
        reader = Reader(viewer.cursor)
        for step in steps(self.read(reader), viewer.cursor.position, viewer.cursor.at, FRAMER, 0):
            viewer.write(step.frames)
        position = reader.position
        ring = self.tip.since(position)
        if ring is None:
            return
        for step in ring:
            viewer.write(step.beyond(position))
            position = step.after
        self.followers.joined(viewer, position, self.tip.position)

    def settle(self) -> None:
        """The wire is whole again."""
        for _ in range(20):
            self.pass_time(5)
            while self.wire:
                self.carry(stored=True, heard=False, again=False)
            while self.acks:
                self.acknowledge(arrives=True)
            if self.owner.window.empty and not self.owner.waiting:
                break
        assert self.owner.window.empty
        self.look(owner_answers=True)
        for number in range(len(self.viewers)):
            self.join(number)


MOSTLY = st.sampled_from([True, True, True, False])
TYPES = st.sampled_from(["message_chunk", "tool_call", "plan"])
FACTS = st.one_of(
    st.tuples(st.just("peer"), st.lists(TYPES, min_size=1, max_size=4)),
    st.tuples(st.just("carry"), MOSTLY, MOSTLY, st.just(False)),
    st.tuples(st.just("carry"), MOSTLY, MOSTLY, st.just(False)),
    st.tuples(st.just("carry"), st.just(True), MOSTLY, st.just(True)),
    st.tuples(st.just("acknowledge"), MOSTLY),
    st.tuples(st.just("acknowledge"), MOSTLY),
    st.tuples(st.just("pass_time"), st.sampled_from([0.5, 1.5])),
    st.tuples(st.just("reconnect")),
    st.tuples(st.just("look"), st.booleans()),
    st.tuples(st.just("join"), st.sampled_from([0, 1])),
)
DEATH = st.just(("replace_owner",))


@settings(max_examples=60, deadline=None)
@given(st.lists(FACTS, min_size=30, max_size=120))
def test_every_viewer_sees_what_the_peer_said_once_and_in_order(facts):
    system = System()
    for name, *arguments in facts:
        getattr(system, name)(*arguments)
    system.settle()

    for viewer in system.viewers:
        assert [n for _, n in viewer.events] == system.sent


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(FACTS, DEATH), min_size=30, max_size=120))
def test_when_owners_die_nothing_is_seen_twice_and_what_was_confirmed_is_seen(facts):
    system = System()
    confirmed: set[int] = set()
    for name, *arguments in facts:
        before = [batch for _, batch in system.log]
        if name == "replace_owner":
            bound = Position(system.owner.numbering.epoch, system.owner.window.confirmed)
            for batch in before:
                if batch.end <= bound:
                    confirmed |= {e.event["n"] for e in batches.events(batch) if "n" in e.event}  # type: ignore[misc]
        getattr(system, name)(*arguments)
    system.settle()

    for viewer in system.viewers:
        seen = [n for type, n in viewer.events if type != "gap"]
        assert seen == sorted(set(seen))  # type: ignore[type-var]
        assert confirmed <= set(seen)
        assert viewer.cursor.position == system.tip.position == system.owner.head().readable
