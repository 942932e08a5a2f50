"""A viewer as cheap as Python can make it, so that it is never what a measurement measures.

A blocking socket; frames are hopped over by their lengths and only looked into where a caller asks for it.
"""

from __future__ import annotations

import base64
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import orjson

from bench.workers import PATIENCE, BenchError

_PING, _CLOSE, _TEXT = 0x89, 0x88, 0x81
_BUFFER = 1024 * 1024
_LITTLE, _LET_GATHER = (
    16_384,
    0.001,
)  # waking for every small write would take the machine from what is measured
_EVENT = b'"action":"session.event"'


def masked(text: bytes, opcode: int = _TEXT) -> bytes:
    """One frame as a client writes it, masked with zeros (which leaves the text as it is)."""
    length = len(text)
    if length < 126:
        head = struct.pack(">BB", opcode, 0x80 | length)
    elif length < 65_536:
        head = struct.pack(">BBH", opcode, 0x80 | 126, length)
    else:
        head = struct.pack(">BBQ", opcode, 0x80 | 127, length)
    return head + b"\0\0\0\0" + text


class RawViewer:
    """One WebSocket connection, from the client's side."""

    def __init__(self, url: str, headers: dict[str, str] | None = None, buffer: int = _BUFFER) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.sock = socket.create_connection((parts.hostname, parts.port or 80), timeout=PATIENCE)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(buffer)
        self._begin = self._end = 0
        self._ids = 0
        self._shake_hands(parts.netloc, parts.path or "/", headers or {})

    def _shake_hands(self, host: str, path: str, headers: dict[str, str]) -> None:
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
            "Sec-WebSocket-Version: 13",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self.sock.sendall("\r\n".join([*lines, "", ""]).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            data = self.sock.recv(4_096)
            if not data:
                raise BenchError("the server hung up during the handshake")
            head += data
        status, rest = head.split(b"\r\n\r\n", 1)
        if b" 101 " not in status.split(b"\r\n", 1)[0] + b" ":
            raise BenchError(f"no WebSocket: {status[:200]!r}")
        self._buffer[: len(rest)] = rest
        self._end = len(rest)

    def send(self, text: bytes, opcode: int = _TEXT) -> None:
        """Write one frame."""
        self.sock.sendall(masked(text, opcode))

    def request(self, action: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Ask and wait for the answer; notifications before it are passed over. Raises BenchError."""
        self._ids += 1
        id = str(self._ids)
        self.send(orjson.dumps({"type": "request", "id": id, "action": action, "payload": payload}))
        for text in self.texts():
            if _EVENT in text[:64]:
                continue
            frame = orjson.loads(text)
            if frame.get("id") == id:
                if frame.get("type") != "response":
                    raise BenchError(f"{action}: {frame.get('payload')}")
                answer: dict[str, Any] = frame["payload"]
                return answer
        raise BenchError(f"{action}: the connection ended")

    def texts(self) -> Iterator[bytes]:
        """Every text, for ever."""
        while True:
            for begin, end in self._frames():
                yield bytes(memoryview(self._buffer)[begin:end])
            self._fill()

    def arrived(self) -> Iterator[bytes]:
        """The texts that come with the next bytes, after waiting for them: none where they end no frame."""
        self._fill()
        for begin, end in self._frames():
            yield bytes(memoryview(self._buffer)[begin:end])

    def count(self, wanted: int, least: int) -> tuple[bytes, bytes, int]:
        """Receive until `wanted` texts of at least `least` bytes came.

        The heads of the first and the last of them, and how many events of any size came from the one to the other.
        """
        first = b""
        counted = others = 0
        while True:
            for begin, end in self._frames():
                if end - begin >= least:
                    counted += 1
                    if counted == 1:
                        first = bytes(self._buffer[begin : begin + 512])
                    if counted == wanted:
                        return first, bytes(self._buffer[begin : begin + 512]), wanted + others
                elif counted and self._buffer.find(_EVENT, begin, end) >= 0:
                    others += 1
            if self._fill() < _LITTLE:
                time.sleep(_LET_GATHER)

    def ready(self, timeout: float) -> Iterator[bytes]:
        """The texts that are there, or come with the next bytes within `timeout`; pings are answered on the way."""
        if self.pending(timeout):
            self._fill()
        for begin, end in self._frames():
            yield bytes(memoryview(self._buffer)[begin:end])

    def pending(self, timeout: float = 0) -> bool:
        """Whether there are bytes to be read, after waiting that long for them."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(timeout * 1000))

    def close(self) -> None:
        self.sock.close()

    def _fill(self) -> int:
        if self._begin == self._end:
            self._begin = self._end = 0
        elif self._end == len(self._buffer):
            left = self._end - self._begin
            room = bytearray(2 * left) if left > len(self._buffer) // 2 else self._buffer
            room[:left] = self._buffer[self._begin : self._end]
            self._buffer = room
            self._begin, self._end = 0, left
        try:
            got = self.sock.recv_into(memoryview(self._buffer)[self._end :])
        except TimeoutError as exc:
            raise BenchError(f"a viewer heard nothing for {PATIENCE:g} s") from exc
        if not got:
            raise BenchError("a viewer was disconnected")
        self._end += got
        return got

    def _frames(self) -> Iterator[tuple[int, int]]:
        """Where the texts of the complete frames in the buffer stand; pings are answered on the way."""
        buffer, where, end = self._buffer, self._begin, self._end
        while end - where >= 2:
            kind, length = buffer[where], buffer[where + 1]
            begin = where + 2
            if length == 126:
                if end - where < 4:
                    break
                length = buffer[where + 2] << 8 | buffer[where + 3]
                begin = where + 4
            elif length == 127:
                if end - where < 10:
                    break
                length = int.from_bytes(buffer[where + 2 : where + 10], "big")
                begin = where + 10
            stop = begin + length
            if stop > end:
                break
            where = self._begin = stop
            if kind == _TEXT:
                yield begin, stop
            elif kind == _PING:
                self.send(bytes(buffer[begin:stop]), 0x8A)
            elif kind == _CLOSE:
                raise BenchError(f"the server closed: {bytes(buffer[begin:stop])!r}")
