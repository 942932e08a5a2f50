"""One viewer following one log: from where it begins until it meets the tip, and again whenever it fell behind.

While it is away from the tip it has a reader of its own, reads the log as fast as its socket takes it, and crosses
the last stretch, which may not be stored yet, by the ring of the tip.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from tieline_protocol import batch as batches
from tieline_protocol.cursor import Cursor, Position
from tieline_protocol.errors import BadMessage, Unavailable
from tieline_protocol.joining import read_from
from tieline_protocol.metrics import BAD_BATCHES
from tieline_protocol.reader import Out, Reader

from tieline_gateway import metrics
from tieline_gateway.close_codes import CloseCode
from tieline_gateway.hub import Rebegin, steps
from tieline_gateway.sockets import Socket
from tieline_gateway.watch import Watch, now_ms, up_to

log = structlog.get_logger()

_FIRST_PAUSE, _MOST_PAUSE = 0.02, 1.0

Spawn = Callable[["Follow"], "asyncio.Task[None]"]


class Follow:
    """Follows until `end`. `asked` is what the viewer asked for, so that asking the same again changes nothing."""

    __slots__ = (
        "_room",
        "_spawn",
        "asked",
        "at",
        "ended",
        "first",
        "on_close",
        "position",
        "socket",
        "task",
        "watch",
    )

    def __init__(
        self,
        watch: Watch,
        socket: Socket,
        asked: object,
        cursor: Cursor,
        first: list[bytes],
        spawn: Spawn,
        on_close: Callable[[CloseCode], None],
    ) -> None:
        self.watch = watch
        self.socket = socket
        self.asked = asked
        self.position = cursor.position
        self.at = cursor.at
        self.first = first  # frames of a snapshot, before everything else
        self.task: asyncio.Task[None] | None = None
        self.ended = False
        self.on_close = on_close
        self._spawn = spawn
        self._room: asyncio.Future[None] | None = None

    @property
    def cursor(self) -> Cursor:
        """Where the viewer is, or will be when it has read what waits for it."""
        if self in self.watch.followers.live:
            return self.watch.tip.cursor
        return Cursor(*self.position, self.at)

    def begin(self) -> None:
        """The viewer has been told where it begins: give it what follows."""
        if self.first or not self._meet():
            self._catch_up()

    def fell_behind(self, position: Position, at: int) -> None:
        """The viewer does not read fast enough to be served live."""
        self.position, self.at = position, at
        metrics.LEFT_FAN_OUT.labels(log=self.watch.key.log).inc()
        self._catch_up()

    def has_room(self) -> None:
        """The viewer has read some of what waited."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def close(self, code: CloseCode) -> None:
        """Close the viewer's socket."""
        self.on_close(code)

    def end(self) -> None:
        """Not followed any more."""
        self.ended = True
        self.watch.followers.left(self)
        self.socket.forget(self)
        if self.task is not None:
            self.task.cancel()

    def _catch_up(self) -> None:
        if not self.ended:
            self.task = self._spawn(self)

    async def catch_up(self) -> None:
        """Read until the tip is met."""
        gauge = metrics.LAGGING.labels(log=self.watch.key.log)
        gauge.inc()
        try:
            await self._send_first()
            await self._until_met()
        except (Rebegin, BadMessage):
            self.close(CloseCode.RESYNC)
        except Exception:  # the last line: one viewer must not end the gateway for all others
            log.exception("a viewer could not be caught up", session=self.watch.key.session)
            self.close(CloseCode.RESYNC)
        finally:
            gauge.dec()
            self.task = None

    async def _send_first(self) -> None:
        while self.first:
            await self._wait_for_room()
            if self.socket.event(self.watch.lane, self, self.first[0]):
                self.first.pop(0)

    async def _until_met(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            await self._wait_for_room()
            if self._meet():
                return
            if self.watch.ready.is_set() and self.watch.tip.since(self.position) is not None:
                continue  # the socket was full: the rest is here, nothing has to be read
            before = self.position
            try:
                await self._read()
            except Unavailable as exc:
                log.info("a log cannot be read now", session=self.watch.key.session, error=exc.message)
                before = self.position
            if self.position != before:
                pause = _FIRST_PAUSE
                continue
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MOST_PAUSE)
            try:
                await self.watch.ask()
            except Unavailable as exc:
                log.info("a head cannot be had now", session=self.watch.key.session, error=exc.message)

    async def _wait_for_room(self) -> None:
        while not self.socket.room(self.watch.lane):
            self._room = asyncio.get_running_loop().create_future()
            try:
                await self._room
            finally:
                self._room = None

    def _meet(self) -> bool:
        """Cross to the tip by its ring. False: it does not reach back so far, or the socket is full."""
        tip = self.watch.tip
        if not self.watch.ready.is_set():
            return False
        ring = tip.since(self.position)
        if ring is None:
            return False
        for step in ring:
            if not self.socket.event(self.watch.lane, self, step.beyond(self.position)):
                self.at = step.resume
                return False
            self.position, self.at = step.after, step.resume
        self.watch.followers.joined(self, self.position, tip.position)
        return True

    async def _read(self) -> None:
        """Read the log once from here to its end, or until the tip can be met or the socket is full."""
        watch = self.watch
        if self.position > Position(watch.head.epoch, watch.head.last):
            await watch.ask()  # more was seen through another gateway than is known here
        head = watch.head
        reader = Reader(Cursor(*self.position, self.at))
        self._deliver(reader.head(head), reader.at)
        seq = read_from(reader.cursor, await watch.reads.openings(watch.key))
        while True:
            page = await watch.reads.page(watch.key, seq, self.watch.page_bytes)
            for stored in page.messages:
                try:
                    batch = batches.decode(stored.data)
                except BadMessage:
                    BAD_BATCHES.labels(service="gateway").inc()
                    continue
                at = reader.at
                if not self._deliver(reader.stored(stored.seq, batch), at):
                    return
            if not page.more:
                at = reader.at
                self._deliver(reader.read_done(up_to(page, seq, head)), at)
                return
            if watch.tip.since(self.position) is not None:
                return
            seq = page.messages[-1].seq + 1
            await self._wait_for_room()

    def _deliver(self, outs: list[Out], at: int) -> bool:
        for step in steps(outs, self.position, at, self.watch.framer, now_ms()):
            if step.gap:
                metrics.GAPS.labels(log=self.watch.key.log, reason=step.gap, where="past").inc()
            if not self.socket.event(self.watch.lane, self, step.frames):
                self.at = step.resume
                return False
            self.position = step.after
            self.at = step.batch.at if step.batch is not None else step.resume
        return True
