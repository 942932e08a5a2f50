"""One frontend socket: the library's connection, written to in one way.

What goes to a viewer is whole WebSocket frames, made elsewhere, handed to the transport as they are: the library's
own frames (pings, pongs, close) take the same road, so frames never mix. Nothing here waits for a viewer: while the
socket is full (`paused`), frames wait in the viewer's lanes. This is the only module that knows the library's inside.
"""

from __future__ import annotations

import asyncio
import socket as sockets
from collections.abc import Sequence
from typing import Any, Protocol

from tieline_protocol import frontend, tcp
from websockets.asyncio.server import ServerConnection
from websockets.frames import CloseCode
from websockets.protocol import State
from websockets.typing import Subprotocol

from tieline_gateway.access import bearer
from tieline_gateway.config import Limits
from tieline_gateway.lanes import BULK, CONTROL, Data, Lanes

OPEN = State.OPEN


class Reader(Protocol):
    """Who wants to know what becomes of a socket."""

    def has_room(self) -> None:
        """The viewer has read some of what waited."""

    def flooded(self) -> None:
        """More answers wait than may."""


class Socket(ServerConnection):
    """A viewer's socket. `send` of the library is not used."""

    # Slots, since one attribute more in the library's own dict would make each connection 2 KiB larger.
    __slots__ = ("_control_bytes", "_gathered", "_lane_bytes", "_lanes", "reader", "stuck_since", "token")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._lane_bytes = self._control_bytes = 0
        self._gathered: list[Data] | None = None  # answers of this turn of the loop after its first
        self._lanes: Lanes | None = None  # made when the socket is full for the first time
        self.token: str | None = None
        self.stuck_since: float | None = None  # full, and not emptied since
        self.reader: Reader | None = None

    def prepare(self, limits: Limits, reader: Reader) -> None:
        """Set the bounds, once the handshake is done, and forget what is of no use any more."""
        self._lane_bytes, self._control_bytes = limits.lane, limits.control
        self.reader = reader
        self.transport.set_write_buffer_limits(high=limits.wire, low=limits.wire // 4)
        raw = self.transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, limits.send_buffer)
        for message in (self.request, self.response):
            if message is not None:
                message.headers.clear()

    async def keepalive(self) -> None:
        """As the library's, but a frame that is still coming is no silence."""
        assert self.ping_interval is not None
        assert self.ping_timeout is not None
        while True:
            await asyncio.sleep(self.ping_interval)
            pong = asyncio.ensure_future(await self.ping())
            left = self.ping_timeout
            while left > 0 and not (await asyncio.wait([pong], timeout=left))[0]:
                quiet = tcp.quiet(self.transport)
                left = 0 if quiet is None else self.ping_timeout - quiet
            if not pong.done():
                async with self.send_context():
                    self.protocol.fail(CloseCode.INTERNAL_ERROR, "keepalive ping timeout")

    @property
    def open(self) -> bool:
        return self.protocol.state is OPEN

    @property
    def waiting_bytes(self) -> int:
        """What waits for the socket to have room."""
        return self._lanes.bytes if self._lanes is not None else 0

    def event(self, lane: int, owner: object, frames: Data) -> bool:
        """Write events, or let them wait; False where too much waits: the owner must be caught up later."""
        if self.protocol.state is not OPEN:
            return True
        if self._gathered:
            self._write_gathered()
        if not self.paused:
            self.transport.write(frames)
            return True
        return self._waiting().event(lane, owner, frames)

    def answer(self, frame: Data) -> None:
        """Write an answer or a notification, before events that wait in the lower lane.

        The first of a turn of the loop goes at once, what follows in the same turn in one write.
        """
        if self.protocol.state is not OPEN:
            return
        if self._gathered is not None:
            self._gathered.append(frame)
        elif self.paused:
            self._let_wait(frame)
        else:
            self.transport.write(frame)
            self._gathered = []
            self.loop.call_soon(self._turn_ended)

    def _turn_ended(self) -> None:
        self._write_gathered()
        self._gathered = None

    def _write_gathered(self) -> None:
        frames, self._gathered = self._gathered, []
        if not frames or self.protocol.state is not OPEN:
            return
        if not self.paused:
            self.transport.writelines(frames)
            return
        for frame in frames:
            self._let_wait(frame)

    def _let_wait(self, frame: Data) -> None:
        if not self._waiting().answer(frame) and self.reader is not None:
            self.reader.flooded()

    def room(self, lane: int) -> bool:
        """Whether it makes sense to read a piece of the log for a lane: nothing of it waits."""
        return not self.paused or (lane == CONTROL and not (self._lanes and self._lanes.waiting(lane)))

    def forget(self, owner: object) -> None:
        """Take back events that wait."""
        if self._lanes is not None:
            self._lanes.forget(owner)

    def _waiting(self) -> Lanes:
        if self._lanes is None:
            self._lanes = Lanes(self._lane_bytes, self._control_bytes)
        return self._lanes

    def end(self, code: int, reason: str, seconds: float) -> None:
        """Say goodbye without waiting: what waits is dropped, and after `seconds` the connection is cut."""
        if self.protocol.state is not OPEN:
            return
        if self._gathered:
            self._write_gathered()
        self._lanes = None
        self.protocol.send_close(code, reason)
        self.send_data()
        self.loop.call_later(seconds, self._cut)

    def _cut(self) -> None:
        self.transport.abort()

    # Called by the transport

    def pause_writing(self) -> None:
        super().pause_writing()
        self.stuck_since = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.stuck_since = None
        if self.protocol.state is not OPEN:
            return
        if (lanes := self._lanes) is not None:
            while not self.paused and (data := lanes.take()) is not None:
                self.transport.write(data)
            if not lanes:
                self._lanes = None
        if self.reader is not None:
            self.reader.has_room()


def choose_subprotocol(connection: Any, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Our subprotocol where it is offered; a token among the offers is kept for the handler."""
    connection.token = bearer(offered)
    ours = Subprotocol(frontend.SUBPROTOCOL)
    return ours if ours in offered else None


__all__ = ["BULK", "CONTROL", "OPEN", "Socket", "choose_subprotocol"]
