"""Keeps one socket to a daemon connected, and says how that goes.

When to dial again and what to say is retry.py's; this file waits, dials and tells.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from tieline_protocol.errors import TielineError

from tieline_streams.dialling import Fatal
from tieline_streams.metrics import DIALS
from tieline_streams.retry import Again, Retry
from tieline_streams.sockets import Socket

log = structlog.get_logger()

Tell = Callable[[dict[str, Any]], None]


class Supervisor:
    """One socket of one session. `connect` dials; `tend` keeps what it gave alive and returns why it was lost.

    A session whose `vital` socket is given up cannot go on.
    """

    def __init__(
        self,
        stream: str,
        connect: Callable[[], Awaitable[Socket]],
        tend: Callable[[Socket], Awaitable[str]],
        tell: Tell,
        retry: Retry | None = None,
        *,
        vital: bool = True,
    ) -> None:
        self.stream = stream
        self._connect = connect
        self._tend = tend
        self._tell = tell
        self._retry = retry or Retry(random.random)
        self._vital = vital
        self._loop = asyncio.get_running_loop()
        self.up = asyncio.Event()
        self.state = "connecting"

    async def run(self) -> None:
        """Until cancelled, or until the daemon is given up. Raises Fatal."""
        while True:
            if self._retry.dialling():
                self._say("connecting", attempt=self._retry.attempt)
            offended = False
            try:
                socket = await self._connect()
            except Fatal as exc:
                DIALS.labels(self.stream, "fatal").inc()
                self._say("down", error=exc.message)
                raise
            except TielineError as exc:
                DIALS.labels(self.stream, "failed").inc()
                error = exc.message
            else:
                DIALS.labels(self.stream, "up").inc()
                error = await self._live(socket)
                offended = socket.too_big
            again = self._retry.lost(self._loop.time())
            if offended and self._retry.offended():
                return self._give_up(error)
            await self._wait(again, error)

    def _give_up(self, error: str) -> None:
        self._say("down", error=f"{error}, again and again: it is not dialled any more")
        if self._vital:
            raise Fatal(f"{error}, again and again")

    async def _live(self, socket: Socket) -> str:
        probation = self._retry.up(self._loop.time())
        if probation:
            timer = self._loop.call_later(probation, self._said_up)
        else:
            timer = None
            self._said_up()
        self.up.set()
        try:
            return await self._tend(socket)
        finally:
            self.up.clear()
            if timer is not None:
                timer.cancel()

    def _said_up(self) -> None:
        self._retry.said_up()
        self._say("up")

    async def _wait(self, again: Again, error: str) -> None:
        if again.state is not None:
            self._say(
                again.state, attempt=self._retry.attempt, next_ms=int(again.seconds * 1000), error=error
            )
        await asyncio.sleep(again.seconds)

    def _say(self, state: str, **facts: Any) -> None:
        self.state = state
        self._tell({"type": "connection", "stream": self.stream, "state": state, **facts})
