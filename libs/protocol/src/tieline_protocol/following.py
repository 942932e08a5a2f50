"""Messages waiting to be taken by a task: bounded, and what was lost in between is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tieline_protocol.received import Received


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
