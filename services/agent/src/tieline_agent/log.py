"""A thread's log: reading it when a thread is taken, and writing it while it is owned.

What may be written is decided elsewhere (run.py); here it is made certain that only the owner writes, that a step is
stored before the next begins, and that a model that talks faster than the broker stores is made to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tieline_protocol import batch, jetstream, subjects
from tieline_protocol.backpressure import Backlog
from tieline_protocol.batch import Batch
from tieline_protocol.bus import Bus
from tieline_protocol.messages import LogHead
from tieline_protocol.numbering import Numbering
from tieline_protocol.publisher import EventPublisher

from tieline_agent import order
from tieline_agent.events import Event

LOG = "thread"
_STEPS = ("epoch", "message", "run", "tool_call", "tool_result")
_STREAMED = ("delta", "reasoning")


async def read(bus: Bus, user: str, thread: str) -> list[Event]:
    """The events that a thread is folded from: every step, and the pieces of an answer that has no end yet.

    Pieces of whole answers, nearly all of a log, are not read. Raises Unavailable.
    """
    stored = await _read(bus, user, thread, _STEPS)
    last = max((seq for seq, event in order.events(stored) if _ends_pieces(event)), default=0)
    stored += await _read(bus, user, thread, _STREAMED, last)
    return [event for _, event in order.events(stored)]


async def _read(
    bus: Bus, user: str, thread: str, types: tuple[str, ...], seq: int = 1
) -> list[tuple[int, Batch]]:
    async def one(type: str) -> list[tuple[int, Batch]]:
        subject = subjects.event(user, thread, LOG, type)
        stream = subjects.stream_of(LOG)
        return [
            (stored.seq, batch.decode(stored.data))
            async for stored in jetstream.read_all(bus, stream, subject, seq)
        ]

    return [pair for found in await asyncio.gather(*map(one, types)) for pair in found]


def _ends_pieces(event: Event) -> bool:
    said = event.get("type") == "message" and event.get("role") == "assistant"
    return said or (event.get("type") == "run" and event.get("state") == "running")


class ThreadLog:
    """The log of one thread in one epoch. `run` is its task."""

    def __init__(
        self,
        bus: Bus,
        user: str,
        thread: str,
        epoch: int,
        *,
        event_bytes: int,
        bound: int,
        may_act: Callable[[], bool],
    ) -> None:
        self._bound = bound
        self._room = asyncio.Event()
        self._publisher = EventPublisher(
            bus,
            Numbering(user, thread, LOG, epoch),
            Backlog(),
            event_bytes,
            on_room=self._room.set,
            may_act=may_act,
        )

    async def run(self) -> None:
        """Publish until cancelled."""
        await self._publisher.run()

    async def open(self, previous: int, last: int, clean: bool) -> None:
        """Begin the epoch. Raises Unavailable."""
        await self._publisher.open(previous, last, clean)

    def say(self, event: Event) -> None:
        self._publisher.say(event)

    async def store(self, event: Event) -> None:
        """Write an event and wait until it, and all before it, are certainly stored."""
        await self._publisher.store(event)

    async def write(self, event: Event) -> None:
        """Write an event; where much is not stored yet, wait."""
        self._publisher.say(event)
        while self._publisher.backlog.bytes > self._bound:
            self._room.clear()
            await self._room.wait()

    async def settled(self) -> None:
        await self._publisher.settled()

    def head(self) -> LogHead:
        return self._publisher.head()
