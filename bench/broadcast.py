"""Worker: the baseline of the fan-out: `websockets.broadcast()` to everybody connected, in its fastest form.

It makes the events itself (no broker in between), encodes nothing while it is measured, and does not compress.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from tieline_protocol import batch
from tieline_protocol.cursor import Cursor
from websockets.asyncio.server import ServerConnection, broadcast, serve

from bench import events
from bench.credit import Credit, credit
from bench.workers import Handler, serve_async

_VIEWER_WINDOW = 512 * 1024  # as much as the other side may have under way
_TURN = 16  # events before others get a turn of the loop; about what comes in one batch


class Broadcaster:
    """Everybody who is connected, and what they will be sent."""

    def __init__(self, allowance: Credit) -> None:
        self._credit = allowance
        self._viewers: set[ServerConnection] = set()
        self._frames: list[bytes] = []
        self.url = ""

    async def hold(self, viewer: ServerConnection) -> None:
        self._viewers.add(viewer)
        try:
            await viewer.wait_closed()
        finally:
            self._viewers.discard(viewer)

    async def where(self) -> dict[str, Any]:
        return {"url": self.url}

    async def prepare(self, count: int, size: int) -> dict[str, Any]:
        framer = batch.Framer("s-bench-broadcast-0000000", "agent")
        event = events.message_chunk(size)
        now = int(time.time() * 1000)
        self._frames = [framer.frame(Cursor(1, offset, 1), now, event) for offset in range(1, count + 1)]
        return {
            "total": sum(map(len, self._frames)),
            "tail": base64.b64encode(self._frames[-1]).decode(),
            "credit_port": self._credit.port,
        }

    async def publish(self) -> dict[str, Any]:
        texts = [next(batch.texts(batch.Batch(1, 1, 1, 1, frame))) for frame in self._frames]
        self._credit.begin()
        began = time.monotonic()
        sent = 0
        for number, text in enumerate(texts, 1):
            broadcast(self._viewers, text, text=True)
            sent += len(text) + 4
            if number % _TURN == 0:
                await asyncio.sleep(0)
                await self._credit.until(sent)
        return {"began": began}


@contextlib.asynccontextmanager
async def main() -> AsyncIterator[Mapping[str, Handler]]:
    async with credit(_VIEWER_WINDOW) as allowance:
        broadcaster = Broadcaster(allowance)
        async with serve(broadcaster.hold, "127.0.0.1", 0, compression=None) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            broadcaster.url = f"ws://127.0.0.1:{port}/"
            yield {
                "where": broadcaster.where,
                "prepare": broadcaster.prepare,
                "publish": broadcaster.publish,
            }


if __name__ == "__main__":
    serve_async(main)
