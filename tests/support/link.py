"""A TCP hop that a test can cut (also in the middle of a frame), freeze, slow, or let lose what it carries."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Literal, Self

Direction = Literal["up", "down"]  # up: from whoever dialled us; down: from the target
_HEAD = 1_024


class Connection:
    """One that passes through: its two ends, and the first bytes that whoever dialled has sent."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.near, self.far = near, far
        self.head = b""

    def cut(self, rst: bool) -> None:
        for writer in (self.near, self.far):
            end(writer, rst)


class Link:
    """Use as `async with Link("127.0.0.1", port) as link`, then dial `link.port` instead of the target's.

    `connections` counts what was ever accepted, `open` what is open now. `only` restricts a cut to connections that
    began with something: a request's path, say.
    """

    def __init__(self, host: str, port: int, *, at: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.target = (host, port)
        self.host, self.port = at
        self.connections = 0
        self.bytes: dict[Direction, int] = {"up": 0, "down": 0}
        self.rate: float | None = None  # bytes per second and direction; None = as fast as it goes
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._left: dict[Direction, int | None] = {"up": None, "down": None}
        self._only = b""
        self._rst = True
        self._losing: set[Direction] = set()
        self._pairs: dict[asyncio.Task[None], Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._held: socket.socket | None = None  # keeps the port ours while nothing is accepted

    @property
    def open(self) -> int:
        return len(self._pairs)

    async def up(self) -> None:
        """Accept (again), on the same port as before, or on another one where `port` was set to 0 meanwhile."""
        assert self._server is None, "already up"
        if self._held is None or not self.port:
            if self._held is not None:
                self._held.close()
            self._held = socket.socket()
            self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._held.bind((self.host, self.port))
            self.port = self._held.getsockname()[1]
        self._server = await asyncio.start_server(self._accept, self.host, self.port, limit=65_536)

    async def down(self, *, rst: bool = True) -> None:
        """Refuse new connections and cut those that are open."""
        self.refuse()
        self.cut(rst=rst)

    def refuse(self) -> None:
        """Accept nothing more; what is open stays."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def cut(self, *, rst: bool = True, only: bytes = b"") -> None:
        """End all open connections, with a reset or an orderly FIN."""
        for connection in list(self._pairs.values()):
            if only in connection.head:
                connection.cut(rst)

    def cut_after(
        self, size: int, direction: Direction = "down", *, rst: bool = True, only: bytes = b""
    ) -> None:
        """Let `size` more bytes through in a direction, then cut: somewhere inside a frame, say."""
        self._left[direction] = size
        self._rst, self._only = rst, only

    def freeze(self) -> None:
        """Pass nothing on; connections stay open and new ones are accepted."""
        self._flowing.clear()

    def lose(self, direction: Direction) -> None:
        """Take what comes in a direction and pass none of it on; both sides believe that all is well."""
        self._losing.add(direction)

    def thaw(self) -> None:
        """Pass on what was held back, and all that follows; what was lost stays lost."""
        self._losing.clear()
        self._flowing.set()

    def passing(self, connection: Connection, direction: Direction, data: bytes) -> None:
        """What is about to be passed on, for those who count."""

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._carry(reader, writer), name="link")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.target)
        except BaseException as exc:
            end(writer, rst=True)
            if isinstance(exc, OSError):
                return
            raise
        connection = self._pairs[task] = Connection(writer, far_writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(connection, reader, far_writer, "up"), name="link up")
                group.create_task(self._pump(connection, far_reader, writer, "down"), name="link down")
        finally:
            del self._pairs[task]
            for one in (writer, far_writer):
                one.close()

    async def _pump(
        self,
        connection: Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        direction: Direction,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if direction == "up" and len(connection.head) < _HEAD:
                    connection.head += data[:_HEAD]
                await self._flowing.wait()
                if self.rate is not None:
                    await asyncio.sleep(len(data) / self.rate)
                if direction in self._losing:
                    continue
                self.passing(connection, direction, data)
                left = self._left[direction] if self._only in connection.head else None
                if left is not None:
                    self._left[direction] = max(0, left - len(data))
                    data = data[:left]
                writer.write(data)
                self.bytes[direction] += len(data)
                await writer.drain()
                if left is not None and len(data) == left:
                    self._left[direction] = None
                    self.cut(rst=self._rst, only=self._only)
                    return
        await self._flowing.wait()
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)  # a connection that was accepted a moment ago gets its handler
        passing = list(self._pairs.values())
        await self.down()
        if self._held is not None:
            self._held.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in passing:
            for writer in (connection.near, connection.far):
                with contextlib.suppress(OSError):
                    await writer.wait_closed()


def end(writer: asyncio.StreamWriter, rst: bool) -> None:
    """Close one end, with a reset or an orderly FIN."""
    if rst:
        sock = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    else:
        writer.close()
