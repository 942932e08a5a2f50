"""Pure: an event's bytes on the way to a viewer.

A batch is one NATS message and one stored message: a prefix of fixed size, then a run of complete, unmasked
WebSocket text frames, one for each event, ready to be written to a socket. All events of a batch have one type,
which its subject ends in.

    prefix: version u8 · epoch u64 · first offset u64 · at u64 · count u32 · length of the frames u32   (big-endian)

`at` (stream sequence of the newest confirmed batch of the epoch when this one was made) stands in the prefix too,
so that a reader always knows from where to read on without looking into the frames.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import orjson

from tieline_protocol import jsontext
from tieline_protocol.cursor import Cursor, Position
from tieline_protocol.errors import BadCursor, BadMessage

VERSION = 1
_PREFIX = struct.Struct(">BQQQII")
PREFIX_SIZE = _PREFIX.size
_TEXT = 0x81  # FIN, opcode 1; the mask bit is clear since these frames go from server to client


@dataclass(frozen=True, slots=True)
class Batch:
    """Events `first … last` of an epoch. `frames` is what a viewer's socket gets, to the byte."""

    epoch: int
    first: int
    count: int
    at: int
    frames: bytes | memoryview

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    @property
    def start(self) -> Position:
        return Position(self.epoch, self.first)

    @property
    def end(self) -> Position:
        return Position(self.epoch, self.last)

    def after(self, offset: int) -> Batch:
        """The part beyond `offset`, which must lie within the batch. Copies nothing."""
        skip = offset - self.first + 1
        if skip <= 0:
            return self
        where = 0
        for _ in range(skip):
            where = _frame_end(self.frames, where)
        return Batch(self.epoch, offset + 1, self.count - skip, self.at, memoryview(self.frames)[where:])

    def until(self, offset: int) -> Batch:
        """The part up to `offset`, which must lie within the batch. Copies nothing."""
        keep = offset - self.first + 1
        if keep >= self.count:
            return self
        where = 0
        for _ in range(keep):
            where = _frame_end(self.frames, where)
        return Batch(self.epoch, self.first, keep, self.at, memoryview(self.frames)[:where])


def encode(batch: Batch) -> bytes:
    """The NATS message of a batch."""
    return prefix(batch.epoch, batch.first, batch.count, batch.at, len(batch.frames)) + batch.frames


def prefix(epoch: int, first: int, count: int, at: int, length: int) -> bytes:
    """What stands before `length` bytes of frames in a NATS message."""
    return _PREFIX.pack(VERSION, epoch, first, at, count, length)


def decode(message: bytes) -> Batch:
    """The batch in a NATS message; its frames are a view, not a copy. Raises BadMessage."""
    try:
        version, epoch, first, at, count, length = _PREFIX.unpack_from(message)
    except struct.error as exc:
        raise BadMessage(f"not a batch: {len(message)} bytes") from exc
    if version != VERSION:
        raise BadMessage(f"a batch of version {version}, not {VERSION}")
    if len(message) != PREFIX_SIZE + length or count < 1 or first < 1:
        raise BadMessage("a batch whose prefix and frames disagree")
    return Batch(epoch, first, count, at, memoryview(message)[PREFIX_SIZE:])


def frame(text: bytes) -> bytes:
    """A WebSocket text frame from server to client."""
    return _header(len(text)) + text


def _header(length: int) -> bytes:
    """What stands before a text of that many bytes in its frame."""
    if length < 126:
        return bytes((_TEXT, length))
    if length < 65_536:
        return struct.pack(">BBH", _TEXT, 126, length)
    return struct.pack(">BBQ", _TEXT, 127, length)


def _frame_header(frames: bytes | memoryview, where: int) -> tuple[int, int]:
    """Where the text of the frame at `where` begins and ends. Raises BadMessage."""
    try:
        if frames[where] != _TEXT:
            raise BadMessage("not a text frame")
        length = frames[where + 1]
        if length < 126:
            begin = where + 2
        elif length == 126:
            begin, length = where + 4, struct.unpack_from(">H", frames, where + 2)[0]
        else:
            begin, length = where + 10, struct.unpack_from(">Q", frames, where + 2)[0]
    except (IndexError, struct.error) as exc:
        raise BadMessage("a batch that ends within a frame") from exc
    if begin + length > len(frames):
        raise BadMessage("a batch that ends within a frame")
    return begin, begin + length


def _frame_end(frames: bytes | memoryview, where: int) -> int:
    return _frame_header(frames, where)[1]


def texts(batch: Batch) -> Iterator[bytes]:
    """The JSON text of each event's frame. Raises BadMessage where frames and count disagree."""
    where = 0
    for _ in range(batch.count):
        begin, where = _frame_header(batch.frames, where)
        yield bytes(batch.frames[begin:where])
    if where != len(batch.frames):
        raise BadMessage("a batch with bytes after its last frame")


AFTER = b"}}"


class Framer:
    """Makes the frames of one log: the head of each text is made once, the event is spliced in as it came."""

    def __init__(self, id: str, log: str) -> None:
        if log == "thread":
            action, named = "thread.event", f'"thread_id":"{id}"'
        else:
            action, named = "session.event", f'"session_id":"{id}","log":"{log}"'
        head = f'{{"type":"notification","action":"{action}","payload":{{{named},"cursor":"'
        self._head = head.encode()

    def frame(self, cursor: Cursor, time_ms: int, event: bytes) -> bytes:
        """One event's frame. `event` is checked JSON text; `time_ms` is Unix time."""
        return b"".join((self.before(*cursor, time_ms, len(event)), event, AFTER))

    def before(self, epoch: int, offset: int, at: int, time_ms: int, length: int) -> bytes:
        """What stands before an event of `length` bytes in its frame; `AFTER` stands after it.

        For whoever joins many frames at once, so that an event's bytes are copied once.
        """
        return self.at(epoch, at, time_ms)(offset, length)

    def at(self, epoch: int, at: int, time_ms: int) -> Callable[[int, int], bytes]:
        """`before` for many events, of which only offset and length differ."""
        start = b"%b%d." % (self._head, epoch)
        rest = b'.%d","time":%d,"event":' % (at, time_ms)

        def before(offset: int, length: int) -> bytes:
            head = b"%b%d%b" % (start, offset, rest)
            size = len(head) + length + len(AFTER)
            if 126 <= size < 65_536:
                return b"\x81\x7e%b%b" % (size.to_bytes(2, "big"), head)
            return _header(size) + head

        return before

    def gap(self, cursor: Cursor, time_ms: int, event: dict[str, object]) -> bytes:
        """A frame of an event that a reader was told of by the gateway, not by the owner (gap, retention)."""
        return self.frame(cursor, time_ms, orjson.dumps(event))


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One event, decoded for those who look inside (the CLI, the owner folding its own log)."""

    cursor: Cursor
    time: int
    event: dict[str, object]


def events(batch: Batch) -> Iterator[EventRecord]:
    """The events of a batch, decoded. Raises BadMessage."""
    for text in texts(batch):
        try:
            payload = jsontext.loads(text)["payload"]
            yield EventRecord(Cursor.parse(payload["cursor"]), payload["time"], payload["event"])
        except (KeyError, TypeError, BadCursor) as exc:
            raise BadMessage("a frame that is not an event") from exc
