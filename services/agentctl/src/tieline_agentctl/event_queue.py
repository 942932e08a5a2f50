"""What waits for the backend on the agent stream: encoded frames, in order.

The bound is on what the agent may add: its output is read only while there is `room()`, so a full queue reaches
the agent's stdout. What we add ourselves (the end of a turn, a cancelled permission) is a handful for each
turn and never waits. A frame leaves by `pop` only after it was written, so a failed write keeps it.
"""

import asyncio
from collections import deque
from typing import Any

from tieline_agentctl import jsontext

MOST_FRAMES = 4_096
MOST_BYTES = 16 * 1024 * 1024


class EventQueue:
    """A bounded queue with one reader at a time; writers wait for `room`, `put` itself never waits."""

    def __init__(self, most_frames: int = MOST_FRAMES, most_bytes: int = MOST_BYTES) -> None:
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._most_frames = most_frames
        self._most_bytes = most_bytes
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._taken = False

    def __len__(self) -> int:
        return len(self._frames)

    def put_event(self, event: dict[str, Any]) -> None:
        """Encode and append an event."""
        self.put(jsontext.dumps(event))

    def put(self, frame: bytes) -> None:
        """Append a frame."""
        self._frames.append(frame)
        self._bytes += len(frame)
        self._filled.set()
        if len(self._frames) >= self._most_frames or self._bytes >= self._most_bytes:
            self._room.clear()

    async def room(self) -> None:
        """Wait until the queue is below its bound."""
        await self._room.wait()

    async def head(self) -> bytes:
        """Wait for the oldest frame; it stays where it is."""
        while not self._frames:  # woken by a frame that was withdrawn meanwhile
            await self._filled.wait()
        self._taken = True
        return self._frames[0]

    def pop(self) -> None:
        """Take the oldest frame out: it was written."""
        self._taken = False
        self._bytes -= len(self._frames.popleft())
        self._left()

    def withdraw(self, frame: bytes) -> None:
        """Take a frame out that nobody needs any more, unless it may have been written already."""
        for at in range(int(self._taken), len(self._frames)):
            if self._frames[at] is frame:
                del self._frames[at]
                self._bytes -= len(frame)
                self._left()
                return

    def _left(self) -> None:
        if not self._frames:
            self._filled.clear()
        if len(self._frames) < self._most_frames and self._bytes < self._most_bytes:
            self._room.set()
