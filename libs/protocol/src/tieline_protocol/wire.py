"""Pure: what a NATS server sends, taken apart: bytes in, messages and control lines out.

A message goes to its receiver from within `feed`, in order with everything else; its payload is copied once. nats-py's
own parser copies each byte four times and costs a coroutine a message: at the rates of a shell's output
that is most of a gateway's work.
"""

from __future__ import annotations

from collections.abc import Callable

from tieline_protocol.errors import ProtocolError

OnMessage = Callable[[int, str, str, bytes, bytes], None]
"""Subscription id, subject, reply subject or "", payload, header block or b""."""

OnControl = Callable[[bytes, bytes], None]
"""`PING`, `PONG`, `INFO` or `-ERR`, and what stands behind it."""

_LONGEST_LINE = 64 * 1024  # an INFO names every server of a cluster; anything longer is no NATS


class Parser:
    """One connection's. `feed` raises ProtocolError for what no server says; the connection is unusable then."""

    def __init__(self, on_message: OnMessage, on_control: OnControl) -> None:
        self._on_message = on_message
        self._on_control = on_control
        self._parts: list[bytes] = []  # the beginning of something whose rest has not come
        self._held = 0  # their bytes
        self._wanted = 0  # bytes until there is any use in looking again

    def feed(self, data: bytes) -> None:
        """Everything that `data` completes is handed on before this returns."""
        if self._parts:
            self._parts.append(data)
            self._held += len(data)
            if self._held < self._wanted:
                return  # a large payload is joined once, not at each read
            data = b"".join(self._parts)
            self._parts, self._held, self._wanted = [], 0, 0
        where, size = 0, len(data)
        while where < size:
            end = data.find(b"\r\n", where)
            if end < 0:
                if size - where > _LONGEST_LINE:
                    raise ProtocolError("a line of the broker's without an end")
                break
            op = data[where : where + 4]
            if op == b"MSG ":
                subject, sid, reply, (length,) = _words(data[where + 4 : end], 1)
                first, header = end + 2, 0
            elif op == b"HMSG":
                subject, sid, reply, (header, length) = _words(data[where + 5 : end], 2)
                first = end + 2
                if header > length:
                    raise ProtocolError("headers larger than their message")
            else:
                name, _, rest = data[where:end].partition(b" ")
                if name in (b"PING", b"PONG", b"INFO", b"-ERR"):
                    self._on_control(name, rest)
                elif name != b"+OK":
                    raise ProtocolError(f"not from a broker: {name[:40]!r}")
                where = end + 2
                continue
            last = first + length
            if last + 2 > size:
                self._wanted = last + 2 - where
                break
            self._on_message(sid, subject, reply, data[first + header : last], data[first : first + header])
            where = last + 2
        if where < size:
            rest = data[where:] if where else data
            self._parts, self._held = [rest], len(rest)


def _words(line: bytes, numbers: int) -> tuple[str, int, str, list[int]]:
    """Subject, subscription id, reply, sizes."""
    words = line.decode("utf-8", "replace").split(" ")
    try:
        reply = words.pop(2) if len(words) == 3 + numbers else ""
        if len(words) != 2 + numbers:
            raise ProtocolError("a message line of another length")
        return words[0], int(words[1]), reply, list(map(int, words[2:]))
    except ValueError as exc:
        raise ProtocolError("a message line that is none") from exc


def headers(block: bytes) -> dict[str, str] | None:
    """A message's headers; the status line that a server writes is `Status` and `Description`. None where none are."""
    first, _, rest = block.partition(b"\r\n")
    found: dict[str, str] = {}
    words = first.split(None, 2)  # NATS/1.0 404 No Messages
    if len(words) > 1 and words[1].isdigit():
        found["Status"] = words[1].decode()
        if len(words) > 2:
            found["Description"] = words[2].decode("utf-8", "replace").strip()
    for line in rest.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon:
            found[name.strip().decode("utf-8", "replace")] = value.strip().decode("utf-8", "replace")
    return found or None
