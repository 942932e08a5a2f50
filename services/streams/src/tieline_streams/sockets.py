"""One WebSocket to a daemon, which dialling.py opens: whole text frames in, frames out, heartbeat, pause, close.

Frames go to a plain function, all that came in one turn of the loop together; what that function raises ends this
socket and nothing else.
Frames that came in one packet with the handshake are delivered like all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

import structlog
from picows import (
    WSCloseCode,
    WSError,
    WSFrame,
    WSListener,
    WSMsgType,
    WSProtocolError,
    WSTransport,
)
from tieline_protocol import tcp
from tieline_protocol.errors import Code, Refused, Unavailable

log = structlog.get_logger()

_TEXT = WSMsgType.TEXT  # looked up for every frame
# Bytes read before everything else in this process gets its turn; the loop itself would read MBs.
_TURN = 128 * 1024
_WRITE_BUFFER = 8 * 1024 * 1024  # a daemon that does not read makes us refuse input above this


class Socket(WSListener):
    """One connection, from the dial to its end. `lost` says why it ended, once it has; `too_big` once `finished`."""

    def __init__(
        self, on_texts: Callable[[list[bytes]], None], max_frame: int, may_act: Callable[[], bool]
    ) -> None:
        super().__init__()
        self._may_act = may_act
        self.unused = 0  # frames that came while this process was not certain to own the session
        self._on_texts = on_texts
        self._texts: list[bytes] = []  # of this turn of the loop
        self._max_frame = max_frame
        self._loop = asyncio.get_running_loop()
        self._transport: WSTransport | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._text = True
        self._reading = True
        self._taken = 0
        self._dropped = False
        self.too_big = False  # it ended because of a frame above the limit, which was not read
        self.orderly = False  # the daemon said that it ends: all that it had sent was read
        self._reason = ""
        self._heard = self._loop.time()
        self.lost: asyncio.Future[str] = self._loop.create_future()

    # What picows calls

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        # Reading takes all that is there at once, as much as the kernel would let gather: 32 MB, past every bound here.
        raw = transport.underlying_transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _TURN)
        self._heard = self._loop.time()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if self._dropped or (transport.is_close_frame_sent and not self._reason):
            return  # picows gave up on a frame, and may give us that very frame in the 10 ms until it disconnects
        if frame.msg_type == _TEXT and frame.fin:
            self._add(frame.get_payload_as_bytes())
        else:
            self._heard = self._loop.time()
            self._received(frame)
        if self._taken >= 0:
            self._taken += frame.payload_size
            if self._taken > _TURN:
                self._taken = -1  # until the next turn
                self._read_or_not()
                self._loop.call_soon(self._next_turn)

    def _add(self, text: bytes) -> None:
        self._texts.append(text)
        if len(self._texts) == 1:
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        """Give what came to whoever uses it."""
        texts = self._texts
        if not texts:
            return
        self._texts = []
        self._heard = self._loop.time()
        if not self._may_act():
            self.unused += len(texts)
            return
        try:
            self._on_texts(texts)
        except Exception:  # a mistake of ours in handling one peer's frame must stay with that peer
            log.exception("a frame could not be handled")
            self.drop("a frame could not be handled", WSCloseCode.INTERNAL_ERROR)

    def _next_turn(self) -> None:
        self._taken = 0
        self._read_or_not()

    def _read_or_not(self) -> None:
        """Make the transport do what is wanted now; asked twice, or while it closes, it would raise."""
        if self._transport is None or self.lost.done():
            return
        transport = self._transport.underlying_transport
        wanted = self._reading and self._taken >= 0
        if transport.is_closing() or transport.is_reading() == wanted:
            return
        if wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._hand_over()
        if not self.lost.done():
            self.lost.set_result(self._reason or "the daemon dropped the connection")

    def _received(self, frame: WSFrame) -> None:
        kind = frame.msg_type
        if kind in (WSMsgType.TEXT, WSMsgType.BINARY):
            self._parts, self._size, self._text = [], 0, kind == WSMsgType.TEXT
            self._gather(frame)
        elif kind == WSMsgType.CONTINUATION:
            self._gather(frame)
        elif kind == WSMsgType.CLOSE:
            self._hand_over()
            self.orderly = True
            self._reason = self._reason or f"the daemon closed the connection ({frame.get_close_code()})"
            assert self._transport is not None
            if not self._transport.is_close_frame_sent:
                self._transport.send_close(WSCloseCode.OK)
            self._transport.disconnect()

    def _gather(self, frame: WSFrame) -> None:
        self._parts.append(frame.get_payload_as_bytes())
        self._size += len(self._parts[-1])
        if self._size > self._max_frame:
            self.too_big = True
            self.drop("a frame above the limit", WSCloseCode.MESSAGE_TOO_BIG)
            return
        if frame.fin:
            whole, self._parts = b"".join(self._parts), []
            # A binary frame is no event: it is handed on to be told as invalid.
            self._add(whole if self._text else b"\x00")

    # What we do with it

    @property
    def open(self) -> bool:
        return self._transport is not None and not self.lost.done()

    def send(self, text: bytes) -> None:
        """Write a frame. Raises Unavailable; Refused (busy) where the daemon does not read."""
        if self._transport is None or self.lost.done() or self._transport.is_disconnected:
            raise Unavailable("the daemon is not connected")
        if not self._may_act():
            raise Unavailable("this process is not certain to own the session")
        if self._transport.underlying_transport.get_write_buffer_size() > _WRITE_BUFFER:
            raise Refused(Code.BUSY, "the daemon does not read what it is sent")
        self._transport.send(WSMsgType.TEXT, text)

    def send_ping(self) -> None:
        if self._transport is not None and not self.lost.done() and self._may_act():
            self._transport.send_ping()

    def pause(self) -> None:
        """Stop reading; nothing is judged dead meanwhile."""
        self._reading = False
        self._read_or_not()

    def resume(self) -> None:
        if not self._reading:
            self._reading = True
            self._heard = self._loop.time()
            self._read_or_not()

    async def watch(self, ping: Callable[[], None], every: float, dead: float) -> str:
        """Keep it alive until it is lost; returns why."""
        while True:
            ping()
            until = self._loop.time() + every
            while (now := self._loop.time()) < until:
                # A process that slept has heard nothing, and knows nothing of the daemon.
                left = self._heard + dead - now if self._reading and self._may_act() else every
                if left <= 0 and self._transport is not None:
                    quiet = tcp.quiet(self._transport.underlying_transport)
                    left = left if quiet is None else dead - quiet
                if left <= 0:
                    self.drop(f"nothing heard for {dead:g} s", WSCloseCode.GOING_AWAY)
                    left = every
                done, _ = await asyncio.wait([self.lost], timeout=min(until - now, left))
                if done:
                    return self.lost.result()

    def cut(self, reason: str) -> None:
        """End the connection and write nothing, not even a Close."""
        self._reason = self._reason or reason
        self._dropped = True
        self.unused += len(self._texts)
        self._texts = []
        if self._transport is not None and not self.lost.done():
            self._transport.underlying_transport.abort()

    def drop(self, reason: str, code: Any = WSCloseCode.OK) -> None:
        """End it without waiting for the peer. What came before is used still."""
        self._hand_over()
        self._reason = self._reason or reason
        self._dropped = True
        if self._transport is not None and not self.lost.done():
            with contextlib.suppress(WSError, OSError):
                self._transport.send_close(code, reason[:100])
            self._transport.disconnect(graceful=False)

    async def close(self, grace: float) -> None:
        """Send Close and read on until the peer's, but not for long."""
        self._reason = self._reason or "closed"
        if self._transport is None or self.lost.done():
            return
        self.resume()
        with contextlib.suppress(WSError, OSError):
            self._transport.send_close(WSCloseCode.OK)
        await asyncio.wait([self.lost], timeout=grace)
        if not self.lost.done():
            self._transport.disconnect(graceful=False)
            await asyncio.wait([self.lost], timeout=1)
        await self.finished()

    async def finished(self) -> None:
        """Collect what picows has to say of the end, which is in the log of whoever asked for it."""
        if self._transport is not None:
            try:
                await self._transport.wait_disconnected()
            except (WSError, OSError) as exc:
                self.too_big |= isinstance(exc, WSProtocolError) and exc.code == WSCloseCode.MESSAGE_TOO_BIG
                log.info("a daemon's connection ended", error=repr(exc))
