"""One frontend socket: the library's connection, written to in one way.

What goes to a viewer is whole WebSocket frames, made elsewhere, handed to the transport as they are: the library's
own frames (pings, pongs, close) take the same road, so frames never mix. Nothing here waits for a viewer: while the
socket is full (`paused`), frames wait in the viewer's lanes. This is the only module that knows the library's inside.
"""

from __future__ import annotations

import socket as sockets
from collections.abc import Callable, Sequence
from typing import Any

from tieline_protocol import frontend
from websockets.asyncio.server import ServerConnection
from websockets.protocol import State
from websockets.typing import Subprotocol

from tieline_gateway.access import bearer
from tieline_gateway.lanes import BULK, CONTROL, Data, Lanes

OPEN = State.OPEN


class Socket(ServerConnection):
    """A viewer's socket. `send` of the library is not used."""

    lanes: Lanes | None = None  # made when the socket is full for the first time
    lane_bytes = 0
    control_bytes = 0
    token: str | None = None
    stuck_since: float | None = None  # full, and nothing went out since
    on_room: Callable[[], None] | None = None
    on_flood: Callable[[], None] | None = None

    def prepare(self, lane_bytes: int, control_bytes: int, wire: int, send_buffer: int) -> None:
        """Set the bounds, once the handshake is done."""
        self.lane_bytes, self.control_bytes = lane_bytes, control_bytes
        self.transport.set_write_buffer_limits(high=wire, low=wire // 4)
        raw = self.transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, send_buffer)

    @property
    def open(self) -> bool:
        return self.protocol.state is OPEN

    def event(self, lane: int, owner: object, frames: Data) -> bool:
        """Write events, or let them wait; False where too much waits: the owner must be caught up later."""
        if self.protocol.state is not OPEN:
            return True
        if not self.paused:
            self.transport.write(frames)
            return True
        return self._lanes().event(lane, owner, frames)

    def answer(self, frame: Data) -> None:
        """Write an answer or a notification, before events that wait in the lower lane."""
        if self.protocol.state is not OPEN:
            return
        if not self.paused:
            self.transport.write(frame)
        elif not self._lanes().answer(frame) and self.on_flood is not None:
            self.on_flood()

    def room(self, lane: int) -> bool:
        """Whether it makes sense to read a piece of the log for a lane: nothing of it waits."""
        return not self.paused or (lane == CONTROL and not (self.lanes and self.lanes.waiting(lane)))

    def forget(self, owner: object) -> None:
        """Take back events that wait."""
        if self.lanes is not None:
            self.lanes.forget(owner)

    def _lanes(self) -> Lanes:
        if self.lanes is None:
            self.lanes = Lanes(self.lane_bytes, self.control_bytes)
        return self.lanes

    def end(self, code: int, reason: str, seconds: float) -> None:
        """Say goodbye without waiting: what waits is dropped, and after `seconds` the connection is cut."""
        if self.protocol.state is not OPEN:
            return
        self.lanes = None
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
        if (lanes := self.lanes) is not None:
            while not self.paused and (data := lanes.take()) is not None:
                self.transport.write(data)
        if self.on_room is not None:
            self.on_room()


def choose_subprotocol(connection: Any, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Our subprotocol where it is offered; a token among the offers is kept for the handler."""
    connection.token = bearer(offered)
    ours = Subprotocol(frontend.SUBPROTOCOL)
    return ours if ours in offered else None


__all__ = ["BULK", "CONTROL", "OPEN", "Socket", "choose_subprotocol"]
