"""Owning a log: taking a key, finding where a log ends, giving the key up; and telling that a list changed.

An owner key has no expiry and is taken by compare-and-swap; the revision of the write that took it is the epoch. Who
may take it (released, or its holder is gone) is decided by the service that owns; what stands in a log is written by
publisher.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

import structlog

from tieline_protocol import batch, jetstream, subjects
from tieline_protocol.bus import Bus
from tieline_protocol.errors import Unavailable
from tieline_protocol.jetstream import Bucket, WrongRevision
from tieline_protocol.messages import Changed, OwnerRecord

log = structlog.get_logger()
T = TypeVar("T")

_AGAIN = 0.2


async def take(owners: Bucket, id: str, holder: str, revision: int) -> int:
    """Own what stands at `revision` (0: nothing does); returns the epoch. Raises WrongRevision, Unavailable."""
    return await owners.put(id, OwnerRecord(holder=holder).encode(), expected=revision)


async def release(owners: Bucket, id: str, holder: str, epoch: int) -> None:
    """Give up what was taken in `epoch`: everything is confirmed. Raises WrongRevision."""
    released = OwnerRecord(holder=holder, released=True).encode()
    try:
        await insist(lambda: owners.put(id, released, expected=epoch))
    except WrongRevision:
        # The first try may have been stored although its answer was lost.
        entry = await insist(lambda: owners.get(id))
        if entry is None or entry.value != released:
            raise


async def end_of(bus: Bus, user: str, id: str, log: str) -> tuple[int, int]:
    """The position that a log ends at; (0, 0) where it has not begun. Raises Unavailable."""
    last = await jetstream.last_message(bus, subjects.stream_of(log), subjects.log_events(user, id, log))
    if last is None:
        return 0, 0
    found = batch.decode(last.data)
    return found.epoch, found.last


async def insist(work: Callable[[], Awaitable[T]]) -> T:
    """Until it works, or the time limit around it ends it."""
    while True:
        try:
            return await work()
        except Unavailable as exc:
            log.info("the broker does not store, trying again", error=exc.message)
            await asyncio.sleep(_AGAIN)


async def announce(
    bus: Bus,
    user: str,
    what: Literal["session", "thread", "remote"],
    id: str,
    change: Literal["added", "updated", "removed"],
) -> None:
    """Tell the gateways that a user's list changed. News only: who misses it asks for the list."""
    try:
        await bus.publish(subjects.changed(user), Changed(what=what, id=id, change=change).encode())
    except Unavailable as exc:
        log.info("a change could not be announced", what=what, id=id, error=exc.message)
