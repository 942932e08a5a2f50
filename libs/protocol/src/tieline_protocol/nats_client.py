"""nats-py's client with a way in and a way out of our own; everything else of NATS is nats-py's.

In: what the server sends is taken apart where it is read (wire.py) and goes straight to whoever subscribed, without
queues, tasks or messages of nats-py's in between. Out: the first message of a turn of the loop goes to the socket at
once, what follows in the same turn in one go. And a connection in trouble is always dropped at once and made again.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import UnexpectedEOF

from tieline_protocol.errors import ProtocolError
from tieline_protocol.received import Received
from tieline_protocol.wire import Parser, headers

T = TypeVar("T")

log = structlog.get_logger()

_AT_ONCE = 64 * 1024  # bytes that may wait to be written before a publish leaves its own to the flusher
_READ = 256 * 1024  # bytes the kernel may gather: all of it is read before anything else gets its turn


async def heeding(work: Awaitable[T]) -> T:
    """Await a call of nats-py, which swallows cancellations where it flushes or connects: a time-out, a stop."""
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        value = await work
    except Exception:
        if task.cancelling() > before:  # it came together with what failed
            raise asyncio.CancelledError from None
        raise
    if task.cancelling() > before:
        raise asyncio.CancelledError
    return value


class NatsClient(Client):
    """`direct`: who is called, from where the message is read, for each subscription id."""

    _written = False  # something was, in this turn of the loop

    def __init__(self) -> None:
        super().__init__()
        self.direct: dict[int, Callable[[Received], None]] = {}

    # In

    async def _read_loop(self) -> None:
        writer = getattr(self._transport, "_io_writer", None)
        reader = getattr(self._transport, "_io_reader", None)
        if writer is None or reader is None:
            return
        link = _Link(self.direct, self.stats, writer.transport, reader)
        try:
            while not (self.is_closed or self.is_reconnecting):
                await link.something.wait()
                link.something.clear()
                while link.aside:
                    await self._heard(*link.aside.popleft())
                if link.ended is not None:
                    await self._error_cb(link.ended)
                    await self._process_op_err(link.ended)
                    break
        except asyncio.CancelledError:
            pass  # as nats-py's own does: whoever cancels does not wait for it
        except Exception as exc:  # a mistake here must not leave a connection that nobody reads
            log.exception("the broker's connection could not be read")
            await self._process_op_err(exc)
        finally:
            link.let_go()

    async def _heard(self, what: bytes, rest: bytes, message: tuple[Any, ...]) -> None:
        match what:
            case b"PING":
                await self._process_ping()
            case b"PONG":
                await self._process_pong()
            case b"INFO":
                await self._process_info(json.loads(rest))
            case b"-ERR":
                await self._process_err(rest.decode("utf-8", "replace").lower())
            case _:  # of a subscription of nats-py's own: answers to what it asks JetStream
                sid, subject, reply, data, block = message
                await self._process_msg(sid, subject.encode(), reply.encode(), data, block)

    async def _process_err(self, err_msg: str) -> None:
        if "permissions violation" in err_msg.lower():
            await super()._process_err(err_msg)
        else:  # "slow consumer", "authentication revoked" …: nats-py would close for good
            error = NatsError(f"nats: {err_msg}")
            await self._error_cb(error)
            await self._process_op_err(error)

    async def _process_op_err(self, e: Exception) -> None:
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:  # closing would first wait until a server that is hung has read everything
            writer.transport.abort()
        await super()._process_op_err(e)

    # Out

    @property
    def flowing(self) -> bool:
        """Whether the server takes what it is sent, so that nothing needs to wait."""
        writer = getattr(self._transport, "_io_writer", None)
        return (
            writer is not None
            and self.is_connected
            and self._pending_data_size < _AT_ONCE
            and writer.transport.get_write_buffer_size() < _AT_ONCE
        )

    @property
    def unsent(self) -> int:
        """Bytes that the server has not taken yet."""
        writer = getattr(self._transport, "_io_writer", None)
        waiting: int = writer.transport.get_write_buffer_size() if writer is not None else 0
        return int(self._pending_data_size) + waiting

    def send_now(self, subject: str, data: bytes, reply: str, later: bool = False) -> None:
        """Publish without the detours; what the socket does not take at once is left to the flusher.

        `later`: with the next message, or at the end of this turn.
        """
        head = f"PUB {subject} {reply} {len(data)}\r\n" if reply else f"PUB {subject} {len(data)}\r\n"
        size = len(data)
        self._pending += (head.encode(), data, b"\r\n")
        self._pending_data_size += len(head) + size + 2  # a subject is ASCII
        stats = self.stats
        stats["out_msgs"] += 1
        stats["out_bytes"] += size
        if later and not self._written:
            self._in_this_turn()
        elif not self._written or self._pending_data_size >= _AT_ONCE:
            self.write_now()
            self._leave_to_flusher()
            if not self._written:
                self._in_this_turn()

    def _in_this_turn(self) -> None:
        self._written = True
        asyncio.get_running_loop().call_soon(self._turn_ended)

    def _turn_ended(self) -> None:
        self._written = False
        self.write_now()
        self._leave_to_flusher()

    def _leave_to_flusher(self) -> None:
        if self._pending and self._flush_queue is not None and self._flush_queue.empty():
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())

    def write_now(self) -> None:
        """Hand the socket what was published: the flusher, which waits for a slow server, is turns of the loop away."""
        writer = getattr(self._transport, "_io_writer", None)
        if (
            self._pending
            and writer is not None
            and self.is_connected
            and writer.transport.get_write_buffer_size() < _AT_ONCE
        ):
            writer.writelines(self._pending)
            self.forget_unsent()

    def forget_unsent(self) -> None:
        """What the lost connection did not send: the next one would send it, long after its sender gave up."""
        self._pending = []
        self._pending_data_size = 0


class _Link(asyncio.Protocol):
    """Reads one connection in place of the stream reader that made it, which still hears how its writing fares."""

    def __init__(
        self,
        direct: dict[int, Callable[[Received], None]],
        stats: dict[str, int],
        transport: asyncio.Transport,
        reader: asyncio.StreamReader,
    ) -> None:
        self._direct = direct
        self._stats = stats
        self._transport = transport
        self._parser = Parser(self._message, self._control)
        self._streams: Any = transport.get_protocol()
        self.aside: deque[tuple[bytes, bytes, tuple[Any, ...]]] = deque()  # what nats-py itself must hear
        self.something = asyncio.Event()
        self.ended: Exception | None = None
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _READ)
        transport.set_protocol(self)
        buffered: bytearray = reader._buffer  # type: ignore[attr-defined]  # there is no other way to it without a wait
        if buffered:
            self.data_received(bytes(buffered))
            buffered.clear()
        if reader.at_eof():
            self._end(UnexpectedEOF())
        elif not transport.is_closing() and not transport.is_reading():
            transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.ended is not None:
            return
        try:
            self._parser.feed(data)
        except ProtocolError as exc:
            self._end(exc)

    def _message(self, sid: int, subject: str, reply: str, data: bytes, block: bytes) -> None:
        handler = self._direct.get(sid)
        if handler is None:
            self.aside.append((b"", b"", (sid, subject, reply, data, block)))
            self.something.set()
            return
        self._stats["in_msgs"] += 1
        self._stats["in_bytes"] += len(data)
        try:
            handler(Received(subject, data, reply, headers(block) if block else None))
        except Exception:  # one bad message must not end the connection
            log.exception("a message could not be handled", subject=subject)

    def _control(self, name: bytes, rest: bytes) -> None:
        self.aside.append((name, rest, ()))
        self.something.set()

    def _end(self, exc: Exception) -> None:
        if self.ended is None:
            self.ended = exc
            self.something.set()

    def let_go(self) -> None:
        """Nobody listens any more: what still comes is dropped."""
        self._end(UnexpectedEOF())

    def eof_received(self) -> bool:
        self._end(UnexpectedEOF())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or UnexpectedEOF())
        self._streams.connection_lost(exc)

    def pause_writing(self) -> None:
        self._streams.pause_writing()

    def resume_writing(self) -> None:
        self._streams.resume_writing()
