"""What a client hears without asking: the events of a session, and notifications. Each queue has a bound.

Events are never dropped in silence: a subscription that is not read fast enough delivers what it holds and then
raises TooSlow. Notifications are news of the moment: above the bound the oldest go.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tieline.errors import TielineError, TooSlow

MAX_WAITING = 64 * 1024 * 1024  # bytes of events that may wait in one subscription
MAX_NOTIFICATIONS = 1_024


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a session or thread. `body` is the daemon's event as it came, or one of Tieline's own.

    One type comes from this client itself: `reset` says that the place where a lost connection had been is not kept
    any more, so that a snapshot follows and what was built from the events before is to be built anew.
    """

    session_id: str
    log: str
    cursor: str
    time: int
    body: dict[str, Any]

    @property
    def type(self) -> str:
        return str(self.body.get("type", ""))


@dataclass(frozen=True, slots=True)
class Joined:
    """Where a subscription began. `reset`: the given cursor is not kept, a snapshot follows."""

    cursor: str | None
    reset: bool


class Subscription:
    """The events of a session, in the order of each log. Ends when it or the client is closed."""

    def __init__(
        self,
        session_id: str,
        logs: tuple[str, ...],
        wanted: dict[str, str],
        leave: Callable[[Subscription], Awaitable[None]],
    ) -> None:
        self.session_id = session_id
        self.logs = logs
        self._wanted = dict(wanted)  # of what was received: where a new connection goes on
        self.joined: dict[str, Joined] = {}
        self.cursors: dict[str, str] = {}  # of what was delivered: where to go on
        self._leave = leave
        self._events: deque[tuple[Event, int]] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._end: TielineError | None = None
        self._ended = False

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._ended:
                if self._end is not None:
                    raise self._end
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        event, size = self._events.popleft()
        self._bytes -= size
        self.cursors[event.log] = event.cursor
        return event

    async def close(self) -> None:
        """Leave; what was not read is dropped."""
        self._events.clear()
        if not self._ended:
            self._finish(None)
            await self._leave(self)

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def _thread(self) -> bool:
        return self.logs == ("thread",)

    def _joining(self) -> tuple[str, dict[str, Any]]:
        """The request that joins, or joins again where this was."""
        if self._thread:
            cursor = {"cursor": self._wanted["thread"]} if "thread" in self._wanted else {}
            return "thread.subscribe", {"thread_id": self.session_id, **cursor}
        logs = {"session_id": self.session_id, "logs": list(self.logs)}
        return "session.subscribe", {**logs, "cursors": dict(self._wanted)}

    def _leaving(self) -> tuple[str, dict[str, Any]]:
        if self._thread:
            return "thread.unsubscribe", {"thread_id": self.session_id}
        return "session.unsubscribe", {"session_id": self.session_id, "logs": list(self.logs)}

    def _begin(self, answer: dict[str, Any]) -> None:
        again = bool(self.joined)
        for log, told in ({"thread": answer} if self._thread else answer.get("logs", {})).items():
            self.joined[log] = Joined(told.get("cursor"), bool(told.get("reset")))
            if told.get("cursor"):
                self.cursors.setdefault(log, told["cursor"])
                self._wanted[log] = told["cursor"]
            if again and self.joined[log].reset:
                self._put(Event(self.session_id, log, told.get("cursor") or "", 0, {"type": "reset"}), 0)

    def _put(self, event: Event, size: int) -> None:
        if self._ended:
            return
        if self._bytes > MAX_WAITING:
            self._finish(TooSlow(MAX_WAITING))
            return
        self._events.append((event, size))
        self._bytes += size
        self._wanted[event.log] = event.cursor
        self._news.set()

    def _finish(self, error: TielineError | None) -> None:
        if not self._ended:
            self._ended = True
            self._end = error
            self._news.set()


class Notifications:
    """Payloads of one kind of notification, from the moment this was made. `dropped` counts what was not read."""

    def __init__(self, leave: Callable[[Notifications], None]) -> None:
        self.dropped = 0
        self._leave = leave
        self._payloads: deque[dict[str, Any]] = deque()
        self._news = asyncio.Event()
        self._end: TielineError | None = None
        self._ended = False

    def __aiter__(self) -> Notifications:
        return self

    async def __anext__(self) -> dict[str, Any]:
        while not self._payloads:
            if self._ended:
                if self._end is not None:
                    raise self._end
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._payloads.popleft()

    def close(self) -> None:
        self._leave(self)
        self._finish(None)

    def __enter__(self) -> Notifications:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(self, payload: dict[str, Any]) -> None:
        if len(self._payloads) >= MAX_NOTIFICATIONS:
            self._payloads.popleft()
            self.dropped += 1
        self._payloads.append(payload)
        self._news.set()

    def _finish(self, error: TielineError | None) -> None:
        if not self._ended:
            self._ended = True
            self._end = error
            self._news.set()
