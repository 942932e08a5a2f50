"""How far the slowest viewer is, told by the sink to whoever publishes, so that nothing piles up in between.

Datagrams on the loopback device: each says a total, so one that is lost or late does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator

from bench.workers import PATIENCE

_TOTAL = struct.Struct(">Q")


class Teller:
    """The sink's side."""

    def __init__(self, port: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect(("127.0.0.1", port))

    def tell(self, total: int) -> None:
        """Every viewer has received `total` bytes since the measurement began."""
        with contextlib.suppress(ConnectionRefusedError, BlockingIOError):
            self._socket.send(_TOTAL.pack(total))

    def close(self) -> None:
        self._socket.close()


class Credit(asyncio.DatagramProtocol):
    """The publisher's side. `window` bytes may be under way."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.port = 0
        self._received = 0
        self._told = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._received = max(self._received, _TOTAL.unpack(data)[0])
        self._told.set()

    def begin(self) -> None:
        self._received = 0

    async def until(self, sent: int) -> None:
        """Wait until `sent` bytes are no more than a window ahead. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            while sent > self._received + self.window:
                self._told.clear()
                await self._told.wait()


@contextlib.asynccontextmanager
async def credit(window: int) -> AsyncIterator[Credit]:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(
        lambda: Credit(window), local_addr=("127.0.0.1", 0)
    )
    try:
        yield protocol
    finally:
        transport.close()
