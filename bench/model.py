"""Worker: a model that streams deltas at a steady pace, each saying when it was written.

All streams of a run begin together, once everybody has asked, and each keeps its own beat, evenly shifted against
the others', as streams of many users are.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from bench import events
from bench.workers import PATIENCE, BenchError, Handler, serve_async

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"
_AHEAD = 0.3  # seconds from the last request to the first delta


class Model:
    """An endpoint for chat completions."""

    def __init__(self) -> None:
        self.url = ""
        self._streams = self._deltas = 0
        self._every = 0.0
        self._asked: list[asyncio.Event] = []
        self._begin = 0.0
        self._done = asyncio.Event()
        self._left = 0
        self._late = 0.0

    async def where(self) -> dict[str, Any]:
        return {"url": self.url}

    async def prepare(self, streams: int, deltas: int, every: float) -> dict[str, Any]:
        """Answer the next `streams` requests with `deltas` deltas each, one every so many seconds."""
        self._streams = self._left = streams
        self._deltas, self._every, self._asked, self._late = deltas, every, [], 0.0
        self._done.clear()
        return {}

    async def finish(self) -> dict[str, Any]:
        """Once all is written: by how much the most belated delta was later than it should, in milliseconds."""
        async with asyncio.timeout(PATIENCE):
            await self._done.wait()
        return {"late": self._late * 1000}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                lengths = [
                    line.split(":")[1] for line in head.split("\r\n") if line.startswith("content-length:")
                ]
                await reader.readexactly(int(lengths[0]))
                await self._stream(writer)
        writer.close()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(_HEAD)
        loop = asyncio.get_running_loop()
        number, started = len(self._asked), asyncio.Event()
        self._asked.append(started)
        if number >= self._streams:
            raise BenchError("more requests than there should be")
        if number + 1 == self._streams:
            self._begin = loop.time() + _AHEAD
            for each in self._asked:
                each.set()
        await started.wait()
        due = self._begin + self._every * number / self._streams
        for _ in range(self._deltas):
            await asyncio.sleep(due - loop.time())
            self._late = max(self._late, loop.time() - due)
            writer.write(events.model_delta(time.monotonic_ns()))
            due += self._every
        writer.write(events.model_end() + _END)
        self._left -= 1
        if not self._left:
            self._done.set()


@contextlib.asynccontextmanager
async def main() -> AsyncIterator[Mapping[str, Handler]]:
    model = Model()
    server = await asyncio.start_server(model.serve, "127.0.0.1", 0)
    model.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield {"where": model.where, "prepare": model.prepare, "finish": model.finish}
    finally:
        server.close()


if __name__ == "__main__":
    serve_async(main)
