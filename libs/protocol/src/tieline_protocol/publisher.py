"""The one way of an event into its log: waits for room, gets its offset, is published, is confirmed.

One publisher per log; the connection it uses carries logs of its kind only, so that a flood of one kind cannot stand
in the way of the other. What may wait and what is dropped: backpressure.py. Offsets: numbering.py. Confirmation:
window.py. This file only carries things between them and the bus.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from tieline_protocol import jsontext
from tieline_protocol.agentctl import Frame
from tieline_protocol.backpressure import Backlog
from tieline_protocol.batch import PREFIX_SIZE
from tieline_protocol.bus import Bus, Received, status
from tieline_protocol.errors import ProtocolError, Refused, Unavailable
from tieline_protocol.jetstream import ack_sequence
from tieline_protocol.messages import LogHead
from tieline_protocol.metrics import DROPPED, EVENTS, GAPS, LOGS, OPENINGS, REPEATS
from tieline_protocol.numbering import RESERVED, Numbering, admit, gap
from tieline_protocol.window import Window

log = structlog.get_logger()

_FRAME = 512  # what a frame, a batch and a broker's limit have around an event
_SURELY_FITS = 64 * 1024  # no broker that we run on takes less
_BUSY = 128 * 1024  # bytes under way that keep the broker at work for a turn of the loop
_UNSURE = 0.1  # seconds between looks whether we may publish again
_TURN = 64  # events numbered before the event loop gets its turn


class EventPublisher:
    """Publishes one log. `run` is its task; everything else may be called from callbacks.

    `may_act`: whether this process is certain to own the log; while it is not, nothing is published.
    """

    def __init__(
        self,
        bus: Bus,
        numbering: Numbering,
        backlog: Backlog,
        limit: int,
        on_numbered: Callable[[str, Sequence[bytes]], None] | None = None,
        on_room: Callable[[], None] | None = None,
        may_act: Callable[[], bool] | None = None,
    ) -> None:
        self._bus = bus
        self._may_act = may_act
        self._numbering = numbering
        self._limit = limit
        self._window = Window()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._inbox = ""  # where confirmations come, once somebody listens
        self._on_numbered = on_numbered
        self._on_room = on_room
        self._stored: list[tuple[int, asyncio.Future[None]]] = []
        self._repeats = 0
        self._seen = 0  # the last offset given when it was looked last
        self._numbered = 0  # at once, and not counted in the metrics yet
        self.backlog = backlog

    # Putting in

    def put(self, type: str, raw: bytes, value: dict[str, Any]) -> None:
        """A peer's event, checked."""
        if not self._at_once(type, [raw]):
            self._put_later(type, raw, value)

    def put_all(self, frames: Sequence[Frame]) -> None:
        """A peer's events, in order, all of one type: for bulk, of which much comes at once."""
        type = frames[0].type
        taken = self._at_once(type, [frame.raw for frame in frames])
        for frame in frames[taken:]:
            self._put_later(type, frame.raw, frame.value)

    def _put_later(self, type: str, raw: bytes, value: dict[str, Any]) -> None:
        admitted, bytes = admit(type, raw, self._most())
        if admitted != type:
            self.backlog.say(admitted, bytes)
        else:
            dropped = self.backlog.dropped
            self.backlog.put(type, raw, value)
            if self.backlog.dropped != dropped:
                DROPPED.inc(self.backlog.dropped - dropped)
        self._wake.set()

    def _at_once(self, type: str, raws: list[bytes]) -> int:
        """Give events their offsets right here, where nothing waits before them and the window has room; how many."""
        window, numbering = self._window, self._numbering
        if self.backlog.bytes or not window.confirmed or type in RESERVED:
            return 0
        room, taken = window.size - window.bytes - numbering.gathered, 0
        for raw in raws:
            room -= len(raw) + _FRAME
            if room < 0 or len(raw) > _SURELY_FITS:
                break
            taken += 1
        if not taken:
            return 0
        if taken < len(raws):
            raws = raws[:taken]
        whole = numbering.received(type, raws, _now_ms())
        for batch in whole:
            window.add(batch)
        if whole and self._inbox:
            self._send()
        if self._on_numbered is not None:
            self._on_numbered(type, raws)
        self._numbered += taken
        self._wake.set()
        return taken

    def say(self, event: dict[str, Any]) -> None:
        """An event of ours."""
        self._say(event, None)

    def say_raw(self, type: str, raw: bytes) -> None:
        """An event of ours whose bytes exist already."""
        self.backlog.say(type, raw)
        self._wake.set()

    def _say(self, event: dict[str, Any], mark: object) -> None:
        type, raw = event["type"], jsontext.dumps(event)
        if len(raw) > self._most():  # what peers gave us to repeat has its bound too
            type, raw = "gap", gap("too_large", type=type, events=1, bytes=len(raw))
        self.backlog.say(type, raw, mark)
        self._wake.set()

    def _most(self) -> int:
        return min(self._limit, self._bus.max_payload - PREFIX_SIZE - _FRAME)

    async def store(self, event: dict[str, Any]) -> None:
        """Publish an event of ours and wait until it is certainly stored."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._say(event, stored)
        await stored

    async def open(self, previous: int, last: int, clean: bool) -> None:
        """Begin the epoch: nothing else of it is published before its opening is stored. Raises Unavailable."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        OPENINGS.labels(log=self.log, clean=str(clean).lower()).inc()
        self._window.add(self._numbering.opening(previous, last, clean, _now_ms()))
        self._stored.append((1, stored))
        self._wake.set()
        await stored

    async def settled(self) -> None:
        """Wait until everything that was put in before is stored."""
        while self.backlog:
            stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._stored.append((self._numbering.last + 1, stored))
            await stored
        await self.confirmed(self._numbering.last)

    async def confirmed(self, offset: int) -> None:
        """Wait until an offset is certainly stored."""
        if self._window.confirmed >= offset:
            return
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stored.append((offset, stored))
        await stored

    @property
    def log(self) -> str:
        """Which log it is: agent, workspace or thread."""
        return self._numbering.log

    @property
    def last(self) -> int:
        """The last offset that was given."""
        return self._numbering.last

    @property
    def window(self) -> Window:
        return self._window

    def head(self) -> LogHead:
        window = self._window
        return LogHead(
            epoch=self._numbering.epoch, last=self._numbering.last, confirmed=window.confirmed, at=window.at
        )

    # At work

    async def run(self) -> None:
        """Publish until cancelled. A later run goes on with what this one has not confirmed."""
        loop = self._loop
        self._window.again()
        inbox = self._bus.inbox()
        subscription = await self._bus.subscribe(f"{inbox}.*", self._acked, on_lost=self._again)
        self._inbox = inbox
        try:
            with LOGS.of(self):
                while True:
                    self._window.tick(loop.time())
                    self._fill()
                    self._send()
                    await self._rest(loop)
        finally:
            for _, stored in self._stored:
                stored.cancel()
            self._stored.clear()
            self._inbox = ""
            await subscription.close()

    def forget(self) -> None:
        """There will be no later run: nobody publishes what waits."""
        self.backlog.clear()

    async def _rest(self, loop: asyncio.AbstractEventLoop) -> None:
        due = self._window.due(loop.time())
        if self._may_act is not None and not self._may_act():
            due = min(loop.time() + _UNSURE, due or math.inf)
        try:
            async with asyncio.timeout_at(due):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _fill(self) -> None:
        """Give offsets to what the window has room for."""
        if not self._window.confirmed:
            return  # the opening comes first, alone
        backlog, numbering, window = self.backlog, self._numbering, self._window
        now = _now_ms()
        taken = 0
        while backlog and taken < _TURN:
            if not window.room(backlog.peek().size + _FRAME, numbering.gathered):
                break
            entry = backlog.pop()
            raw = entry.raw
            for batch in numbering.received(entry.type, [raw], now):
                window.add(batch)
            if isinstance(entry.mark, asyncio.Future):
                self._stored.append((numbering.last, entry.mark))
            if self._on_numbered is not None:
                self._on_numbered(entry.type, [raw])
            if entry.type == "gap":
                GAPS.labels(log=self.log, reason=jsontext.loads(raw)["reason"]).inc()
            taken += 1
        if numbering.gathered and window.bytes > _BUSY and numbering.last != self._seen:
            self._wake.set()  # enough is under way and more may come: a turn later it is a fuller batch
        else:
            for batch in numbering.flush():
                window.add(batch)
        self._seen = numbering.last
        if self._numbered or taken:
            EVENTS.inc(self._numbered + taken)
            self._numbered = 0
        if taken:
            if backlog:
                self._wake.set()
            if self._on_room is not None:
                self._on_room()

    def _send(self) -> None:
        """Give the connection all that it may have: no more than the window, so it need not wait for the broker."""
        if self._may_act is not None and not self._may_act():
            return
        window, loop = self._window, self._loop
        while self._bus.connected and (following := window.next(loop.time())) is not None:
            name, batch = following
            window.sent(loop.time())
            try:
                self._bus.publish_now(batch.subject, batch.data, f"{self._inbox}.{name}")
            except Unavailable:
                return  # the reconnect publishes all of it again
            except (ProtocolError, Refused) as exc:
                # The broker's limit was lowered under us: an operator must see to it. It is tried again as if it
                # had not been confirmed, and nothing is lost meanwhile.
                log.error("a batch cannot be published", subject=batch.subject, error=exc.message)
                return

    def _acked(self, received: Received) -> None:
        seq = None if status(received) else ack_sequence(received.data)
        name = received.subject.rpartition(".")[2]
        if self._window.acked(name, seq, self._loop.time()):
            self._numbering.at = self._window.at
            if self._stored:
                self._tell_stored(self._window.confirmed)
            if not (self.backlog or self._window.unsent):
                return  # nothing has waited for it
        if self._window.repeats != self._repeats:
            REPEATS.inc(self._window.repeats - self._repeats)
            self._repeats = self._window.repeats
        self._wake.set()

    def _tell_stored(self, confirmed: int) -> None:
        ready = [stored for offset, stored in self._stored if offset <= confirmed]
        self._stored = [waiting for waiting in self._stored if waiting[0] > confirmed]
        for stored in ready:
            if not stored.done():
                stored.set_result(None)

    def _again(self) -> None:
        self._window.again()
        self._wake.set()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
