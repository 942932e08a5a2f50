"""What a connection has asked for and is not answered yet. No connection here: see bus.py.

Each request has a token, the last part of the subject where its answer comes. There are three ways to wait: a task
for one answer, a function that is called with it, and an exchange of several.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import structlog

from tieline_protocol.errors import FateUnknown, NoResponders, TimedOut
from tieline_protocol.received import Received, nobody

log = structlog.get_logger()

Answered = Callable[[Received | Exception], None]

_LOOK = 1.0  # s between looks for functions whose time is up
_BROKE = "the connection to the broker broke"


class Exchange:
    """The answers to one request. Bounded: a peer that answers without end loses its oldest answers."""

    _BOUND = 1024

    def __init__(self) -> None:
        self._answers: deque[Received | None] = deque(maxlen=self._BOUND)
        self._waiter: asyncio.Future[None] | None = None

    def put(self, received: Received | None) -> None:
        """An answer came; None: the connection broke."""
        self._answers.append(received)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self, timeout: float) -> Received:
        """The next answer. Raises NoResponders, FateUnknown (at the disconnect), TimedOut (after `timeout` s)."""
        if not self._answers:
            loop = asyncio.get_running_loop()
            waiter = self._waiter = loop.create_future()
            expiry = loop.call_later(timeout, _wake, waiter)
            try:
                await waiter
            finally:
                expiry.cancel()
            if not self._answers:
                raise TimedOut(f"nothing heard for {timeout:g} s")
        received = self._answers.popleft()
        if received is None:
            raise FateUnknown(_BROKE)
        if nobody(received):
            raise NoResponders("nobody is there")
        return received


class Awaited:
    """The requests of one connection."""

    def __init__(self) -> None:
        self._tokens = itertools.count(1)
        self._futures: dict[str, asyncio.Future[Received]] = {}
        self._exchanges: dict[str, Exchange] = {}
        self._functions: dict[str, tuple[float, Answered]] = {}  # with the loop's time of its end
        self._expiring: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._futures) + len(self._functions) + len(self._exchanges)

    def token(self) -> str:
        """A new one."""
        return format(next(self._tokens), "x")

    # To wait

    @contextlib.contextmanager
    def one(self, timeout: float) -> Iterator[tuple[str, asyncio.Future[Received]]]:
        """A token and its one answer, until the block is left. It raises TimedOut, FateUnknown (at the disconnect)."""
        token = self.token()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Received] = loop.create_future()
        self._futures[token] = future
        expiry = loop.call_later(timeout, _expire, future, timeout)
        try:
            yield token, future
        finally:
            expiry.cancel()
            del self._futures[token]
            if future.done() and not future.cancelled():
                future.exception()  # nobody may have come to wait for it

    @contextlib.contextmanager
    def several(self) -> Iterator[tuple[str, Exchange]]:
        """A token and its answers, until the block is left."""
        token = self.token()
        exchange = self._exchanges[token] = Exchange()
        try:
            yield token, exchange
        finally:
            del self._exchanges[token]

    def call(self, token: str, timeout: float, then: Answered) -> None:
        """`then` is called once: with the answer, or with NoResponders, TimedOut or FateUnknown.

        Thousands may be under way, so that one timer looks after all of them: a time-out may come a second late.
        """
        loop = asyncio.get_running_loop()
        self._functions[token] = (loop.time() + timeout, then)
        if self._expiring is None:
            self._expiring = loop.call_later(_LOOK, self._expire)

    # What becomes of them

    def heard(self, received: Received) -> None:
        """An answer, to whoever still waits for it."""
        token = received.subject.rpartition(".")[2]
        function = self._functions.pop(token, None)
        if function is not None:
            function[1](NoResponders("nobody is there") if nobody(received) else received)
            return
        exchange = self._exchanges.get(token)
        if exchange is not None:
            exchange.put(received)
            return
        future = self._futures.get(token)
        if future is not None and not future.done():
            future.set_result(received)

    def lost(self) -> None:
        """The connection broke: what became of anything that is under way is not known."""
        for exchange in self._exchanges.values():
            exchange.put(None)
        for future in list(self._futures.values()):
            if not future.done():
                future.set_exception(FateUnknown(_BROKE))
        self._end(list(self._functions), FateUnknown(_BROKE))

    def close(self) -> None:
        """Nobody is told anything any more."""
        if self._expiring is not None:
            self._expiring.cancel()
            self._expiring = None

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        late = [token for token, (until, _) in self._functions.items() if now >= until]
        self._expiring = loop.call_later(_LOOK, self._expire) if len(late) < len(self._functions) else None
        self._end(late, TimedOut("no answer in time"))

    def _end(self, tokens: Sequence[str], exc: Exception) -> None:
        for then in [self._functions.pop(token)[1] for token in tokens]:
            try:
                then(exc)
            except Exception:  # the others must hear of it too
                log.exception("what waited for an answer failed")


def _expire(future: asyncio.Future[Received], timeout: float) -> None:
    if not future.done():
        future.set_exception(TimedOut(f"no answer within {timeout:g} s"))


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
