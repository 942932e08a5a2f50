"""Messages waiting to be taken by a task: bounded, and what was lost in between is told."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from tieline_protocol.errors import FateUnknown, NoResponders, TimedOut
from tieline_protocol.received import Received, status


class Following:
    """What `Bus.following` hands out: lists of messages in order; `None` where some were lost in between."""

    def __init__(self, bound: int, dropped: Callable[[], None] = lambda: None) -> None:
        self._bound = bound
        self._dropped = dropped
        self._messages: list[Received] = []
        self._bytes = 0
        self._gone = False
        self._ready = asyncio.Event()

    def put(self, received: Received) -> None:
        if self._bytes > self._bound:
            self._messages.clear()
            self._bytes = 0
            self._dropped()
            self.lose()
        self._messages.append(received)
        self._bytes += len(received.data)
        self._ready.set()

    def lose(self) -> None:
        """Some messages are missing."""
        self._gone = True
        self._ready.set()

    def __aiter__(self) -> Following:
        return self

    async def __anext__(self) -> list[Received] | None:
        await self._ready.wait()
        if self._gone:
            self._gone = False
            if not self._messages:
                self._ready.clear()
            return None
        messages, self._messages, self._bytes = self._messages, [], 0
        self._ready.clear()
        return messages


class Exchange:
    """The answers to one request. Bounded: a peer that answers without end loses its oldest answers."""

    _BOUND = 1024

    def __init__(self) -> None:
        self._answers: deque[Received | None] = deque(maxlen=self._BOUND)
        self._waiter: asyncio.Future[None] | None = None

    def _put(self, received: Received | None) -> None:
        self._answers.append(received)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _break(self) -> None:
        self._put(None)

    async def next(self, timeout: float) -> Received:
        """The next answer. Raises NoResponders, FateUnknown (at the disconnect), TimedOut (after `timeout` s)."""
        if not self._answers:
            loop = asyncio.get_running_loop()
            waiter = self._waiter = loop.create_future()
            expiry = loop.call_later(timeout, _expire, waiter)
            try:
                await waiter
            finally:
                expiry.cancel()
            if not self._answers:
                raise TimedOut(f"nothing heard for {timeout:g} s")
        received = self._answers.popleft()
        if received is None:
            raise FateUnknown("the connection to the broker broke")
        if status(received) == "503" and not received.data:
            raise NoResponders("nobody is there")
        return received


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
