"""The records of threads, and the keys that say which of them have something to do.

The latter are the work queue: an owner writes the key before the first event of an open run and takes it away when
no run is open; whoever learns that a process ended looks through them. They only wake: what is to be done stands in
the log alone.
"""

from __future__ import annotations

import time
from typing import Any

from tieline_protocol import subjects
from tieline_protocol.bus import Bus
from tieline_protocol.errors import BadMessage, Code, Refused
from tieline_protocol.jetstream import Bucket, WrongRevision
from tieline_protocol.messages import OpenThread, ThreadRecord
from tieline_protocol.ownership import announce

_MARK = 60  # seconds that the mark of a deleted key stays
_TRIES = 10


class Records:
    """One process's access to the bucket of threads. Everything raises Unavailable."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, subjects.BUCKET_THREADS)

    async def create(self, record: ThreadRecord) -> None:
        """A new thread; one that is there already stays as it is."""
        try:
            key = subjects.thread_key(record.user, record.thread)
            await self._bucket.put(key, record.encode(), expected=0)
        except WrongRevision:
            return
        await announce(self._bus, record.user, "thread", record.thread, "added")

    async def get(self, user: str, thread: str) -> ThreadRecord:
        """Raises Refused (not_found)."""
        return (await self._get(user, thread))[0]

    async def of_user(self, user: str) -> list[ThreadRecord]:
        entries = await self._bucket.entries(subjects.thread_keys(user))
        return [ThreadRecord.decode(entry.value) for entry in entries]

    async def change(self, user: str, thread: str, **changes: Any) -> None:
        """Change a record, whoever else changes it meanwhile. Raises Refused (not_found)."""
        for _ in range(_TRIES):
            record, revision = await self._get(user, thread)
            updated = max(now_ms(), record.updated + 1)
            changed = record.model_copy(update={**changes, "updated": updated})
            try:
                await self._bucket.put(subjects.thread_key(user, thread), changed.encode(), expected=revision)
            except WrongRevision:
                continue
            await announce(self._bus, user, "thread", thread, "updated")
            return
        raise Refused(Code.CONFLICT, "the thread is changed by others all the time, try again")

    async def delete(self, user: str, thread: str) -> None:
        await self._bucket.delete(subjects.thread_key(user, thread), ttl=_MARK)
        await announce(self._bus, user, "thread", thread, "removed")

    async def _get(self, user: str, thread: str) -> tuple[ThreadRecord, int]:
        entry = None
        if subjects.is_id(thread):
            entry = await self._bucket.get(subjects.thread_key(user, thread))
        if entry is None:
            raise Refused(Code.NOT_FOUND, "there is no such thread")
        return ThreadRecord.decode(entry.value), entry.revision

    # What has something to do

    async def opened(self, user: str, thread: str) -> int:
        """This thread has something to do; returns the revision of its key."""
        return await self._bucket.put(
            subjects.open_key(thread), OpenThread(thread=thread, user=user).encode()
        )

    async def done(self, thread: str, revision: int | None = None) -> None:
        """It has nothing to do any more, if nobody wrote the key since."""
        try:
            await self._bucket.delete(subjects.open_key(thread), expected=revision, ttl=_MARK)
        except WrongRevision:
            return

    async def all_open(self) -> list[OpenThread]:
        found = []
        for entry in await self._bucket.entries(subjects.open_key("*")):
            try:
                found.append(OpenThread.decode(entry.value))
            except BadMessage:
                await self._bucket.delete(entry.key, ttl=_MARK)
        return found


def now_ms() -> int:
    return time.time_ns() // 1_000_000
