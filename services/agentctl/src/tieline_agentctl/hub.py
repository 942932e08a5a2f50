"""Who listens to an instance's workspace, and how slow they may be.

Bulk output (shell, processes) waits for the readers: its source is not read while a reader has `HIGH` bytes before it.
A reader that takes nothing for `PATIENCE` seconds is stuck; it misses bulk output, and is told how much, until it
reads again. Small facts never wait: each reader keeps up to `MOST_FACTS` of them, beyond that it misses them; a fact
with a key (the status of a repository) takes the place of an older one that was not sent yet.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import structlog

from tieline_agentctl import workspace_frames
from tieline_agentctl.wall import now_ms

log = structlog.get_logger()

HIGH = 256 * 1024
MOST_FACTS = 1024
PATIENCE = 5.0


class Reader:
    """The frames that one workspace stream has yet to send."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._frames: deque[tuple[str, bool, str]] = (
            deque()
        )  # text, bulk?, key of a fact that replaces itself
        self._facts = 0
        self._bulk = 0
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._patience = patience
        self._taken_at = time.monotonic()
        self._missed = 0
        self._end = asyncio.Event()
        self.closed = False

    @property
    def behind(self) -> bool:
        return self._bulk >= HIGH and not self.closed

    def fact(self, frame: str, key: str = "") -> None:
        if self.closed:
            return
        if not self._replace(key) and self._facts >= MOST_FACTS:
            log.warning("a workspace reader is too slow, a frame is lost to it", frame=frame[:80])
            return
        self._facts += 1
        self._put(frame, False, key)

    def bulk(self, frame: str, size: int) -> None:
        if self.closed:
            return
        if self.behind:
            self._missed += size
            return
        self._bulk += len(frame)
        self._put(frame, True, "")

    async def room(self) -> None:
        """Until there is room for bulk output, or this reader is found to be stuck."""
        while self.behind:
            left = self._patience - (time.monotonic() - self._taken_at)
            if left <= 0:
                return
            self._room.clear()
            try:
                async with asyncio.timeout(left):
                    await self._room.wait()
            except TimeoutError:
                continue

    async def frames(self) -> AsyncIterator[str]:
        """What to send next, until closed."""
        while not self.closed:
            if not self._frames:
                self._more.clear()
                await self._more.wait()
                continue
            text, bulk, _ = self._frames.popleft()
            self._taken_at = time.monotonic()
            if bulk:
                self._bulk -= len(text)
                if self._bulk < HIGH:
                    self._room.set()
                    self._tell_missed()
            else:
                self._facts -= 1
            yield text

    async def ended(self) -> None:
        """Until somebody closes this reader."""
        await self._end.wait()

    def close(self) -> None:
        self.closed = True
        self._end.set()
        self._more.set()
        self._room.set()

    def _put(self, frame: str, bulk: bool, key: str) -> None:
        if not self._frames:
            self._taken_at = max(self._taken_at, time.monotonic())
        self._frames.append((frame, bulk, key))
        self._more.set()

    def _tell_missed(self) -> None:
        """Behind the last output that was kept: there it is where the rest is missing."""
        if self._missed:
            self.fact(workspace_frames.dropped(self._missed, now_ms()))
            self._missed = 0

    def _replace(self, key: str) -> bool:
        if not key:
            return False
        for index, (_, _, other) in enumerate(self._frames):
            if other == key:
                del self._frames[index]
                self._facts -= 1
                return True
        return False


class Hub:
    """Every reader of one instance's workspace."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._readers: dict[Reader, None] = {}

    def __len__(self) -> int:
        return len(self._readers)

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        reader = Reader(self._patience)
        self._readers[reader] = None
        try:
            yield reader
        finally:
            reader.close()
            self._readers.pop(reader, None)

    def fact(self, frame: str, key: str = "") -> None:
        for reader in self._readers:
            reader.fact(frame, key)

    async def bulk(self, frame: str, size: int) -> None:
        """Returns when every reader that reads has room for it."""
        for reader in list(self._readers):
            if reader.behind:
                await reader.room()
        for reader in self._readers:
            reader.bulk(frame, size)

    def close(self) -> None:
        for reader in list(self._readers):
            reader.close()
