"""Requests of one connection to one session that must keep their order (shell input), at the speed of typing machines.

All that came while the last ones were under way is published together, in order, on one broker connection, without
waiting in between. What fails goes again one by one; what a later one has overtaken does not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import structlog
from tieline_protocol.errors import FateUnknown, NoResponders, TielineError, TimedOut, Unavailable
from tieline_protocol.frontend import Action, FrameId
from tieline_protocol.messages import Request

log = structlog.get_logger()

_TOGETHER = 128  # half of what an owner answers at a time: other requests find room

Outcome = bytes | TielineError


@dataclass(frozen=True, slots=True)
class Item:
    """One request and where its answer goes."""

    id: FrameId
    action: Action
    request: Request
    size: int


Try = Callable[[Action, Request], Awaitable[bytes]]


class Ordered:
    """The requests that wait. `once` tries once, `insist` with all patience; `answered` is told each outcome."""

    def __init__(self, once: Try, insist: Try, answered: Callable[[Item, Outcome], None]) -> None:
        self._once = once
        self._insist = insist
        self._answered = answered
        self._waiting: deque[Item] = deque()

    def put(self, item: Item) -> bool:
        """Add one; True where `run` must be started."""
        self._waiting.append(item)
        return len(self._waiting) == 1

    async def run(self) -> None:
        """Until nothing waits. An item leaves the queue when it is answered, so `put` sees work under way."""
        while self._waiting:
            together = [self._waiting[i] for i in range(min(_TOGETHER, len(self._waiting)))]
            outcomes = await asyncio.gather(*(self._try(self._once, item) for item in together))
            await self._settle(together, outcomes)

    async def _settle(self, together: list[Item], outcomes: list[Outcome]) -> None:
        through = max((i for i, outcome in enumerate(outcomes) if isinstance(outcome, bytes)), default=-1)
        gave_up: TielineError | None = None
        for i, (item, outcome) in enumerate(zip(together, outcomes, strict=True)):
            if isinstance(outcome, (NoResponders, FateUnknown, TimedOut)):
                if i < through:
                    outcome = Unavailable("this did not arrive, and later input did")
                elif gave_up is not None:
                    outcome = gave_up
                else:
                    outcome = await self._try(self._insist, item)
                    if isinstance(outcome, TielineError):
                        gave_up = outcome
            self._answered(item, outcome)
            self._waiting.popleft()

    async def _try(self, how: Try, item: Item) -> Outcome:
        try:
            return await how(item.action, item.request)
        except TielineError as exc:
            return exc
        except Exception:  # the last line: whoever asked gets an answer, and the next ones their turn
            log.exception("a request could not be handled", action=item.action.name)
            return TielineError("something went wrong here")


Start = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]


class OrderedRequests:
    """The ordered requests of one connection, by session. `most` may wait, of up to `most_bytes`; then `put` waits."""

    __slots__ = (
        "_answered",
        "_bytes",
        "_insist",
        "_most",
        "_most_bytes",
        "_once",
        "_room",
        "_sessions",
        "_start",
        "_waiting",
    )

    def __init__(
        self,
        once: Try,
        insist: Try,
        answered: Callable[[Item, Outcome], None],
        start: Start,
        most: int,
        most_bytes: int,
    ) -> None:
        self._once, self._insist = once, insist
        self._answered = answered
        self._start = start
        self._most, self._most_bytes = most, most_bytes
        self._sessions: dict[str, Ordered] = {}
        self._waiting = self._bytes = 0
        self._room: asyncio.Future[None] | None = None

    async def put(self, item: Item) -> None:
        """Send a request after those that came before it."""
        while self._waiting and (self._waiting >= self._most or self._bytes > self._most_bytes):
            self._room = asyncio.get_running_loop().create_future()
            await self._room
        self._waiting += 1
        self._bytes += item.size
        session = item.request.payload["session_id"]
        ordered = self._sessions.get(session)
        if ordered is None:
            ordered = self._sessions[session] = Ordered(self._once, self._insist, self._done)
        if ordered.put(item):
            self._start(self._run(session, ordered), f"{item.action.name} {session}")

    async def _run(self, session: str, ordered: Ordered) -> None:
        await ordered.run()
        if self._sessions.get(session) is ordered:
            del self._sessions[session]

    def _done(self, item: Item, outcome: Outcome) -> None:
        self._waiting -= 1
        self._bytes -= item.size
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._answered(item, outcome)
