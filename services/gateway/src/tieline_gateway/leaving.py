"""What a connection that is gone leaves to do: whoever waits for its answers hears so, and its remotes go."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import structlog
from tieline_protocol import subjects
from tieline_protocol.bus import Bus
from tieline_protocol.errors import TielineError, TimedOut, Unavailable
from tieline_protocol.frontend import ACTIONS
from tieline_protocol.leases import ProcessLease

from tieline_gateway.requests import Requests

log = structlog.get_logger()

Start = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]

_PAUSE = 1.0  # s between tries
_TRIES = 60


class Leaving:
    """True while something is left to do."""

    def __init__(self, bus: Bus, lease: ProcessLease, requests: Requests, start: Start) -> None:
        self._bus = bus
        self._lease = lease
        self._requests = requests
        self._start = start
        self._under_way = 0

    def __bool__(self) -> bool:
        return self._under_way > 0

    async def removed(self, user: str, connection: str, name: str, trace: str | None = None) -> bytes:
        """Take a connection's own registration away; the answer's payload. Raises TielineError."""
        action = ACTIONS["remote-disconnect"]
        facts = {"remotename": name, "connection": connection}
        return await self._requests.service(action, self._requests.make(action, user, facts, trace))

    def begin(self, user: str, connection: str, calls: set[tuple[str, str]], names: list[str]) -> None:
        """Tell the end of a connection that had these calls (replica and number) and remotes."""
        self._under_way += 1
        self._start(self._left(user, connection, dict(calls), names), f"end of connection {connection}")

    async def _left(self, user: str, connection: str, calls: dict[str, str], names: list[str]) -> None:
        try:
            for replica, number in calls.items():  # one word to each replica ends all calls of the connection
                subject = subjects.call(replica, number, "disconnected")
                await self._insist(functools.partial(self._bus.publish, subject, self.sender(connection)))
            for name in names:
                await self._insist(functools.partial(self.removed, user, connection, name))
        finally:
            self._under_way -= 1

    async def _insist(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        for _ in range(_TRIES):
            try:
                await self._bus.wait_connected()
                await work()
            except (Unavailable, TimedOut) as exc:
                log.info("the end of a connection cannot be told now", error=exc.message)
                await asyncio.sleep(_PAUSE)
            except TielineError:  # not there (any more), or somebody else's: all that was wanted
                return
            else:
                return

    def sender(self, connection: str) -> bytes:
        """What stands before all that a connection says of a call."""
        return b'{"gateway":"%b","connection":"%b"}\n' % (self._lease.id.encode(), connection.encode())
