"""Requests being answered: concurrently, under a bound, and to the end when it closes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

from tieline_protocol.errors import Code, Refused, TielineError
from tieline_protocol.messages import refusal
from tieline_protocol.received import Received
from tieline_protocol.spread import Spread

if TYPE_CHECKING:
    from tieline_protocol.bus import Bus, Subscription

log = structlog.get_logger()

_BUSY = refusal(Refused(Code.BUSY, "too many requests at once, try again"))
_BROKEN = refusal(TielineError("the request could not be handled"))


@dataclass(slots=True)
class EndpointStats:
    """What the services convention reports of an endpoint; times in nanoseconds."""

    requests: int = 0
    errors: int = 0
    last_error: str = ""
    processing: int = 0
    spread: Spread = field(default_factory=Spread)

    def took(self, duration: int) -> None:
        """A request is done with."""
        self.processing += duration
        self.spread.add(duration)


@dataclass(slots=True)
class Server:
    """Requests being answered. `close` stops taking new ones and waits for those under way."""

    _bus: Bus
    _handler: Callable[[Received], Awaitable[bytes | None] | bytes | None]
    _limit: int
    _subscription: Subscription | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    stats: EndpointStats = field(default_factory=EndpointStats)

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    def _received(self, received: Received) -> None:
        if len(self._tasks) >= self._limit:
            self._answer(received, _BUSY)
            return
        began = time.perf_counter_ns()
        self.stats.requests += 1
        try:
            reply = self._handler(received)
        except Exception as exc:  # noqa: BLE001  # the last line: a handler turns what it expects into replies itself
            reply = self._broken(received, exc)
        if reply is None or isinstance(reply, bytes):
            self.stats.took(time.perf_counter_ns() - began)
            if reply is not None:
                self._answer(received, reply)
            return
        task = self._start(self._handle(received, reply, began), f"answer {received.subject}")
        if isinstance(reply, Coroutine):
            task.add_done_callback(
                functools.partial(_close, reply)
            )  # it may have been cancelled before it began

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _handle(self, received: Received, working: Awaitable[bytes | None], began: int) -> None:
        try:
            reply = await working
        except Exception as exc:  # noqa: BLE001  # the last line, as above
            reply = self._broken(received, exc)
        finally:
            self.stats.took(time.perf_counter_ns() - began)
        if reply is not None:
            await self._reply(received, reply)

    def _broken(self, received: Received, exc: Exception) -> bytes:
        log.error("a request could not be handled", subject=received.subject, exc_info=exc)
        self.stats.errors += 1
        self.stats.last_error = repr(exc)
        return _BROKEN

    def _answer(self, received: Received, reply: bytes) -> None:
        if not received.reply:
            return
        with contextlib.suppress(TielineError):  # which `_reply` meets again
            if self._bus.publish_quickly(received.reply, reply, later=True):
                return
        self._start(self._reply(received, reply), f"answer {received.subject}")

    async def _reply(self, received: Received, reply: bytes) -> None:
        if not received.reply:
            return
        try:
            try:
                await self._bus.publish(received.reply, reply)
            except Refused as exc:  # too large: whoever asked is told so instead of waiting in vain
                await self._bus.publish(received.reply, refusal(exc))
        except TielineError as exc:
            log.warning("an answer could not be sent", subject=received.subject, error=str(exc))

    async def refuse(self) -> None:
        """Take no more requests: whoever asks is told that nobody is here. Those that came are still answered."""
        if self._subscription is not None:
            await self._subscription.close(drain=True)

    async def close(self, grace: float = 5) -> None:
        """Stop taking requests; answer those that came, for `grace` seconds."""
        await self.refuse()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)


def _close(work: Coroutine[Any, Any, Any], _: asyncio.Task[None]) -> None:
    work.close()
