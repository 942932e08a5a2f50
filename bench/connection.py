"""The scripted daemon's side of one connection: just enough HTTP/1.1 and WebSocket, and nothing between a prepared
run of frames and the socket."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from tieline_protocol import batch

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_REASONS = {200: "OK", 201: "Created", 404: "Not Found"}
HIGH_WATER = 512 * 1024


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request; `path` has no query."""

    method: str
    path: str
    body: dict[str, Any]


Route = Callable[[HttpRequest], tuple[int, Any]]


class Connection(asyncio.Protocol):
    """One connection: HTTP requests, one after the other, until one of them makes it a WebSocket."""

    def __init__(self, route: Route, upgraded: Callable[[str, Connection], None]) -> None:
        self._route = route
        self._upgraded = upgraded
        self._unread = b""
        self._transport: asyncio.WriteTransport | None = None
        self._websocket = False
        self._writable = asyncio.Event()
        self._writable.set()
        self.on_text: Callable[[dict[str, Any]], None] = lambda _: None
        self.open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(
            asyncio.WriteTransport, transport
        )  # uvloop's derives from nothing of asyncio's
        self._transport.set_write_buffer_limits(HIGH_WATER)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def writable(self) -> None:
        """Wait until the peer has taken most of what was written. Raises ConnectionError once it is gone."""
        await self._writable.wait()
        if not self.open:
            raise ConnectionResetError("the backend hung up")

    @property
    def waiting(self) -> bool:
        """Whether the peer is behind."""
        return not self._writable.is_set()

    def write(self, frames: bytes) -> None:
        assert self._transport is not None
        self._transport.write(frames)

    def say(self, value: dict[str, Any]) -> None:
        self.write(batch.frame(json.dumps(value).encode()))

    def data_received(self, data: bytes) -> None:
        self._unread += data
        while self._websocket_frame() if self._websocket else self._http_request():
            pass

    def _http_request(self) -> bool:
        head, separator, rest = self._unread.partition(b"\r\n\r\n")
        if not separator:
            return False
        start, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = start.split(" ", 2)
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)
        }
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return False
        body, self._unread = rest[:length], rest[length:]
        path = target.partition("?")[0]
        if headers.get("upgrade", "").lower() == "websocket":
            self._upgrade(path, headers["sec-websocket-key"])
            return True
        parsed = json.loads(body) if body.strip() else {}
        code, answer = self._route(HttpRequest(method, path, parsed if isinstance(parsed, dict) else {}))
        text = json.dumps(answer).encode()
        self.write(
            f"HTTP/1.1 {code} {_REASONS[code]}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(text)}\r\n\r\n".encode()
            + text
        )
        return True

    def _upgrade(self, path: str, key: str) -> None:
        accept = base64.b64encode(hashlib.sha1(key.encode() + _MAGIC).digest()).decode()
        self.write(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
        )
        self._websocket = True
        self._upgraded(path, self)

    def _websocket_frame(self) -> bool:
        data = self._unread
        if len(data) < 6:
            return False
        length, begin = data[1] & 0x7F, 2
        if length == 126:
            length, begin = int.from_bytes(data[2:4], "big"), 4
        elif length == 127:
            length, begin = int.from_bytes(data[2:10], "big"), 10
        end = begin + 4 + length
        if len(data) < end:
            return False
        mask = data[begin : begin + 4]
        text = bytes(byte ^ mask[place & 3] for place, byte in enumerate(data[begin + 4 : end]))
        self._unread = data[end:]
        match data[0] & 0x0F:
            case 1:
                self.on_text(json.loads(text))
            case 8:
                self.write(bytes((0x88, len(text))) + text)
                assert self._transport is not None
                self._transport.close()
            case 9:
                self.write(bytes((0x8A, len(text))) + text)
        return True
