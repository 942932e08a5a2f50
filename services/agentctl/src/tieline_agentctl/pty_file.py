"""A pseudo-terminal's master side: waiting reads, queued writes, a size. What runs on it is the caller's business."""

import asyncio
import fcntl
import os
import pty
import struct
import termios
from typing import Self

READ = 16 * 1024
MOST_PENDING = 1024 * 1024  # typed but not taken by the program


class PtyFile:
    """Both ends are ours until closed: the slave end stays open so that what was written last can still be read."""

    def __init__(self, cols: int, rows: int) -> None:
        self._master, self._slave = pty.openpty()
        os.set_blocking(self._master, False)
        self.name = os.ttyname(self._slave)
        self._loop = asyncio.get_running_loop()
        self._reading: asyncio.Future[None] | None = None
        self._pending = bytearray()
        self._writing = False
        self._closed = False
        self._finished = False
        self.resize(cols, rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._closed = True
        self._loop.remove_reader(self._master)
        if self._writing:
            self._loop.remove_writer(self._master)
        os.close(self._master)
        os.close(self._slave)

    def resize(self, cols: int, rows: int) -> None:
        """The program on the terminal hears of it by SIGWINCH."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def _read_now(self) -> bytes:
        """What is there, up to READ bytes; empty when nothing is."""
        parts: list[bytes] = []
        size = 0
        while size < READ:
            try:
                data = os.read(self._master, READ - size)
            except (BlockingIOError, OSError):
                break
            if not data:
                break
            parts.append(data)
            size += len(data)
        return b"".join(parts)

    def finish(self) -> None:
        """Nothing more will be written: `read` ends after what is there."""
        self._finished = True
        self._readable()

    async def read(self) -> bytes:
        """Waits until something is there. It yields once in any case: a flood must not starve the others."""
        await asyncio.sleep(0)
        while not (data := self._read_now()):
            if self._finished:
                return b""
            self._reading = self._loop.create_future()
            self._loop.add_reader(self._master, self._readable)
            try:
                await self._reading
            finally:
                self._reading = None
                if not self._closed:
                    self._loop.remove_reader(self._master)
        return data

    def write(self, data: bytes) -> bool:
        """In order, as fast as the program takes it; False when too much is pending and this was not taken.

        What comes while nothing is pending is always taken: it is no more than a frame.
        """
        if self._pending and len(self._pending) + len(data) > MOST_PENDING:
            return False
        self._pending += data
        if not self._writing:
            self._flush()
        return True

    def _flush(self) -> None:
        try:
            while self._pending:
                sent = os.write(self._master, self._pending[:4096])
                del self._pending[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._pending.clear()
        if bool(self._pending) != self._writing:
            self._writing = bool(self._pending)
            if self._writing:
                self._loop.add_writer(self._master, self._flush)
            else:
                self._loop.remove_writer(self._master)

    def _readable(self) -> None:
        if self._reading is not None and not self._reading.done():
            self._reading.set_result(None)
