"""One followed log: one broker subscription, whatever the number of viewers; the reads that keep it whole.

The decisions are in `hub.py`; here is what waits: for messages, for the store, for the owner.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import structlog
from tieline_protocol import batch as batches
from tieline_protocol import tracing
from tieline_protocol.batch import Framer
from tieline_protocol.bus import Bus, Following, Received
from tieline_protocol.cursor import Cursor, Position
from tieline_protocol.errors import BadMessage, Unavailable
from tieline_protocol.jetstream import Page
from tieline_protocol.joining import read_from
from tieline_protocol.metrics import BAD_BATCHES
from tieline_protocol.reader import Head, Out

from tieline_gateway import metrics
from tieline_gateway.close_codes import CloseCode
from tieline_gateway.config import Limits
from tieline_gateway.heads import Found, Heads, LogKey, Reads
from tieline_gateway.hub import Followers, Rebegin, Step, Tip
from tieline_gateway.sockets import BULK, CONTROL

if TYPE_CHECKING:
    from tieline_gateway.joining import Follow

log = structlog.get_logger()

_SLICE = 0.005  # seconds of fan-out before other logs, requests and pings get their turn
_GULP = 64 * 1024  # bytes before the sockets get theirs: the loop writes to them, and they to the network
_FIRST_PAUSE, _MOST_PAUSE = 0.02, 1.0  # between looks at a log that lacks something


def now_ms() -> int:
    return int(time.time() * 1000)


def up_to(page: Page, seq: int, head: Head) -> int:
    """Up to which sequence a log has nothing more after a last page; `head` was asked for before the page was read."""
    return page.messages[-1].seq if page.messages else max(seq - 1, head.at)


class Watch:
    """A log, as this gateway follows it for all who look at it here."""

    def __init__(self, key: LogKey, bus: Bus, reads: Reads, heads: Heads, limits: Limits) -> None:
        self.key = key
        self.lane = BULK if key.log == "workspace" else CONTROL
        self.reads = reads
        self.page_bytes = limits.lane  # a viewer that catches up reads as much at once as may wait for it
        self.framer = Framer(key.session, key.log)
        self.followers: Followers[Follow] = Followers()
        self.users = 0
        self.ready = asyncio.Event()
        self.found = Found(Head(0, 0, 0, 0), Cursor(0, 0, 0), False)
        self.task: asyncio.Task[None] | None = None
        self._bus = bus
        self._heads = heads
        self._limits = limits
        self._tip = Tip(Cursor(0, 0, 0), self.framer, limits.ring, now_ms, limits.burst)
        self._heard: Following | None = None
        self._heard_at = self._asked_at = 0.0
        self._silences = 0
        self._again: asyncio.TimerHandle | None = None
        self._pause = _FIRST_PAUSE
        self._nudged = False
        self._batches = metrics.DELIVERED_BATCHES.labels(log=key.log)
        self._bytes = metrics.DELIVERED_BYTES.labels(log=key.log)

    @property
    def tip(self) -> Tip:
        """Where the log is; of use once `ready`."""
        return self._tip

    async def run(self) -> None:
        """Follow until cancelled. Whatever is away is waited for."""
        tracing.apart()
        try:
            while True:
                try:
                    await self._follow()
                except Unavailable as exc:
                    log.info("a log cannot be followed now", session=self.key.session, error=exc.message)
                except Rebegin:
                    log.warning("a log begins anew", session=self.key.session, log=self.key.log)
                    self._let_go()
                except Exception:  # the last line: one log must not end the gateway for all others
                    log.exception("a log could not be followed", session=self.key.session)
                    self._let_go()
                await asyncio.sleep(1)
        finally:
            self._no_timer()
            self._tip.forget()

    async def _follow(self) -> None:
        async with self._bus.following(self.key.events, self._limits.pending) as heard:
            self._heard = heard
            try:
                if not self.ready.is_set():
                    await self._begin()
                else:
                    heard.lose()  # away in between
                async for messages in heard:
                    await self._received(messages)
            finally:
                self._heard = None

    async def _begin(self) -> None:
        found = await self.ask()
        limits = self._limits
        self._tip = Tip(found.safe, self.framer, limits.ring, now_ms, limits.burst)
        self._perform(self._tip.reader.head(found.head))
        await self._look(ask=False)
        self.ready.set()

    @property
    def head(self) -> Head:
        """The head as far as it is known: what was heard live since it was told counts too."""
        head, tip = self.found.head, self._tip.position
        if tip.epoch == head.epoch and tip.offset > head.last:
            return Head(head.epoch, tip.offset, head.confirmed, head.at, head.final)
        return head

    async def ask(self) -> Found:
        """The head, now. Raises Unavailable."""
        self._asked_at = asyncio.get_running_loop().time()
        self.found = await self._heads.ask(self.key)
        return self.found

    async def _received(self, messages: list[Received] | None) -> None:
        if messages is None:
            if not self._nudged:
                metrics.LOST.labels(log=self.key.log).inc()
            self._nudged = False
            await self._look(ask=True)
            return
        loop = asyncio.get_running_loop()
        began = self._heard_at = loop.time()
        self._silences = gulp = 0
        for message in messages:
            try:
                self._perform(self._tip.reader.live(batches.decode(message.data)))
            except BadMessage:
                BAD_BATCHES.labels(service="gateway").inc()
            gulp += len(message.data)
            if gulp > _GULP or loop.time() - began > _SLICE:
                await asyncio.sleep(0)
                began, gulp = loop.time(), 0
        if self._tip.reader.behind and self._again is None:
            await self._look(ask=True)

    async def _look(self, ask: bool) -> None:
        """Read on from the log; look again soon while something is known to be missing."""
        self._no_timer()
        before = self._tip.position
        try:
            if ask:
                found = await self.ask()
                self._perform(self._tip.reader.head(found.head))
            if self._tip.reader.behind or self.lacks:
                await self._read_on()
        except Unavailable as exc:
            log.info("a log cannot be read now", session=self.key.session, error=exc.message)
            self._look_again(_MOST_PAUSE)
            return
        if self._tip.position > before:
            self._pause = _FIRST_PAUSE
        if self._tip.reader.behind or (self.lacks and self.found.owned):  # else nobody is there to bring it
            self._look_again(self._pause)
            self._pause = min(self._pause * 2, _MOST_PAUSE)

    @property
    def lacks(self) -> bool:
        """Whether something is known to exist that did not come, be it stored already or not."""
        head = self.found.head
        return self._tip.reader.waiting or self._tip.position < Position(head.epoch, head.last)

    async def _read_on(self) -> None:
        reader = self._tip.reader
        head = self.found.head
        seq = read_from(reader.cursor, await self.reads.openings(self.key))
        while True:
            page = await self.reads.page(self.key, seq, 4 * self._limits.lane)
            for stored in page.messages:
                try:
                    self._perform(reader.stored(stored.seq, batches.decode(stored.data)))
                except BadMessage:
                    BAD_BATCHES.labels(service="gateway").inc()
                await asyncio.sleep(0)
            if not page.more:
                self._perform(reader.read_done(up_to(page, seq, head)))
                return
            seq = page.messages[-1].seq + 1

    def _look_again(self, pause: float) -> None:
        if self._heard is not None:
            self._again = asyncio.get_running_loop().call_later(pause, self._nudge)

    def _nudge(self) -> None:
        self._again = None
        if self._heard is not None:
            self._nudged = True
            self._heard.lose()

    def _no_timer(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def tick(self, now: float) -> None:
        """A log that is silent is asked about: its last events may have been lost on the way."""
        self._tip.age()
        limits = self._limits
        wait = limits.silence_seconds if not self._silences else limits.silence_most
        if self._heard is not None and now - max(self._heard_at, self._asked_at) >= wait:
            self._silences += 1
            self._nudged = True
            self._heard.lose()

    def _perform(self, outs: list[Out]) -> None:
        for step in self._tip.took(outs):
            self._fan_out(step)

    def _fan_out(self, step: Step) -> None:
        """Constant work for each viewer, and nothing waits for any of them."""
        if step.gap:
            metrics.GAPS.labels(log=self.key.log, reason=step.gap, where="live").inc()
        frames, lane = step.frames, self.lane
        live = self.followers.live
        refused = [follow for follow in live if not follow.socket.event(lane, follow, frames)]
        self._batches.inc(len(live))
        self._bytes.inc(len(live) * len(frames))
        for follow in refused:
            self.followers.left(follow)
            follow.fell_behind(step.before, step.resume)
        if self.followers.ahead:
            for follow, rest in self.followers.overtaken(step):
                if not follow.socket.event(lane, follow, rest):
                    self.followers.left(follow)
                    follow.fell_behind(follow.position, step.resume)

    def _let_go(self) -> None:
        """The log is not the one that the viewers know: they come back and are given a snapshot."""
        self.ready.clear()
        for follow in [*self.followers.live, *self.followers.ahead]:
            self.followers.left(follow)
            follow.close(CloseCode.RESYNC)
