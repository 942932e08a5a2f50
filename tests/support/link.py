"""A TCP hop that a test can cut, freeze, slow, or cut in the middle of a frame."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Literal

Direction = Literal["up", "down"]  # up: from whoever dialled us; down: from the target


class Link:
    """Use as `async with Link("127.0.0.1", port) as link`, then dial `link.port` instead of the target's.

    `connections` counts what was ever accepted, `open` what is open now.
    """

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.port = 0
        self.connections = 0
        self.bytes: dict[Direction, int] = {"up": 0, "down": 0}
        self.rate: float | None = None  # bytes per second and direction; None = as fast as it goes
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._left: dict[Direction, int | None] = {"up": None, "down": None}
        self._rst = True
        self._pairs: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def open(self) -> int:
        return len(self._pairs)

    async def up(self) -> None:
        """Accept (again), on the same port as before."""
        assert self._server is None, "already up"
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=65_536)
        self.port = self._server.sockets[0].getsockname()[1]

    async def down(self, *, rst: bool = True) -> None:
        """Refuse new connections and cut those that are open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut(rst=rst)

    def cut(self, *, rst: bool = True) -> None:
        """End all open connections, with a reset or an orderly FIN."""
        for pair in list(self._pairs.values()):
            for writer in pair:
                _end(writer, rst)

    def cut_after(self, size: int, direction: Direction = "down", *, rst: bool = True) -> None:
        """Let `size` more bytes through in a direction, then cut: somewhere inside a frame, say."""
        self._left[direction] = size
        self._rst = rst

    def freeze(self) -> None:
        """Pass nothing on; connections stay open and new ones are accepted."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Pass on what was held back, and all that follows."""
        self._flowing.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.target)
        except OSError:
            _end(writer, rst=True)
            return
        self._pairs[task] = (writer, far_writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far_writer, "up"), name="link up")
                group.create_task(self._pump(far_reader, writer, "down"), name="link down")
        finally:
            del self._pairs[task]
            for one in (writer, far_writer):
                one.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                await self._flowing.wait()
                if self.rate is not None:
                    await asyncio.sleep(len(data) / self.rate)
                left = self._left[direction]
                if left is not None:
                    self._left[direction] = max(0, left - len(data))
                    data = data[:left]
                writer.write(data)
                self.bytes[direction] += len(data)
                await writer.drain()
                if left is not None and len(data) == left:
                    self._left[direction] = None
                    self.cut(rst=self._rst)
                    return
        await self._flowing.wait()
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()

    async def __aenter__(self) -> Link:
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _end(writer: asyncio.StreamWriter, rst: bool) -> None:
    if rst:
        sock = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    else:
        writer.close()
