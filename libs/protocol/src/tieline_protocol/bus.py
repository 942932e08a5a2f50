"""NATS: one connection that reconnects for ever and says so. Nothing else but its two halves (subscription.py,
nats_client.py) imports nats.

What nats-py does not do and we need: it pings every few seconds; a request fails at the disconnect instead of at its
time-out; nothing is given to a connection that is down, nor sent by the next one; no error of the server ends the
connection for good; what would make the server hang up (a payload above its limit, a subject with a space) is refused
before it is sent; dropped messages are told to who misses them; request handlers run concurrently under a bound, and
draining waits for them (server.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import structlog
from nats.errors import Error as NatsError

from tieline_protocol.awaited import Answered, Awaited, Exchange
from tieline_protocol.backoff import delays
from tieline_protocol.errors import (
    Code,
    NoResponders,
    ProtocolError,
    Refused,
    TimedOut,
    Unavailable,
)
from tieline_protocol.following import Following
from tieline_protocol.metrics import BUS, BUS_DROPPED, BUS_RECONNECTS
from tieline_protocol.nats_client import NatsClient, heeding
from tieline_protocol.received import Received, nobody, status
from tieline_protocol.server import EndpointStats, Server
from tieline_protocol.subscription import Subscription, unused

__all__ = [
    "Bus",
    "BusSettings",
    "EndpointStats",
    "Exchange",
    "Following",
    "Received",
    "Server",
    "Subscription",
    "connect",
    "status",
]

log = structlog.get_logger()

FOLLOWED_BYTES = 64 * 1024 * 1024  # that may wait for a task that follows a subject
_MAX_SUBJECT = 2_048  # the server's control line holds 4,096 bytes


@dataclass(frozen=True, slots=True)
class BusSettings:
    """How to reach NATS. `name` is what operators see; one process may hold several connections."""

    url: str
    name: str
    user: str | None = None
    password: str | None = None
    inbox_prefix: str = "_INBOX"
    ping_interval: float = 5  # nats-py waits 120 s; a hung server must show sooner
    max_outstanding_pings: int = 2
    password_file: PurePath | None = None  # read at each connection: a new password needs no restart


class Bus:
    """One connection. Made by `connect`; closed, after draining, by leaving its block."""

    def __init__(self, settings: BusSettings) -> None:
        self.settings = settings
        self._nc = NatsClient()
        self._connected = asyncio.Event()
        self._awaited = Awaited()
        self._inbox = ""
        self._subscriptions: dict[int, Subscription] = {}
        self._on_disconnect: list[Callable[[], None]] = []
        self._on_reconnect: list[Callable[[], None]] = []
        self._opened = self._closing = False
        self._complaint = ""

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    async def wait_connected(self) -> None:
        await self._connected.wait()

    @property
    def max_payload(self) -> int:
        """The server's limit for one message, in bytes."""
        return int(self._nc.max_payload)

    @property
    def unsent(self) -> int:
        """Bytes that the server has not taken yet."""
        return self._nc.unsent

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return len(self._awaited)

    @property
    def traffic(self) -> dict[str, int]:
        """`in_msgs`, `in_bytes`, `out_msgs`, `out_bytes` since the start."""
        return self._nc.stats

    def on_disconnect(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back at each loss of the connection; returns what ends that."""
        self._on_disconnect.append(callback)
        return lambda: self._on_disconnect.remove(callback)

    def on_reconnect(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when the connection, and with it every subscription, is there again."""
        self._on_reconnect.append(callback)
        return lambda: self._on_reconnect.remove(callback)

    def inbox(self) -> str:
        """A subject of this connection's own, where nobody else may listen."""
        return f"{self.settings.inbox_prefix}.{secrets.token_hex(8)}"

    # Publishing and requests

    def check(self, subject: str, size: int = 0) -> None:
        """Refuse what the server would answer by hanging up. Raises ProtocolError or Refused (too_large)."""
        plain = subject.isascii() and subject.isprintable() and " " not in subject
        if not plain or not 0 < len(subject) <= _MAX_SUBJECT:
            raise ProtocolError(f"not a subject: {subject!r:.80}")
        if size > self.max_payload:
            raise Refused(
                Code.TOO_LARGE, f"{size:,} bytes are more than the broker takes ({self.max_payload:,})"
            )

    async def publish(
        self, subject: str, data: bytes, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Hand a message to the connection. Raises Unavailable while it is down: nothing is queued for later."""
        size = len(data)
        if headers:
            size += 16 + sum(len(name) + len(value.encode()) + 4 for name, value in headers.items())
        self.check(subject, size)
        if reply:
            self.check(reply)
        if not self.connected:
            raise Unavailable("the broker is away")
        if not headers and self._nc.flowing:
            self._nc.send_now(subject, data, reply)
            return
        try:
            await heeding(self._nc.publish(subject, data, reply, headers))
            self._nc.write_now()
        except (NatsError, OSError) as exc:  # a flush may find the socket broken before anybody else does
            raise Unavailable(f"the broker is away: {exc}") from exc

    def publish_now(self, subject: str, data: bytes, reply: str = "") -> None:
        """The same, without a place where it could wait: for who bounds by itself what is under way."""
        self.check(subject, len(data))
        if reply:
            self.check(reply)
        if not self.connected:
            raise Unavailable("the broker is away")
        self._nc.send_now(subject, data, reply)

    def publish_quickly(self, subject: str, data: bytes, reply: str = "", *, later: bool = False) -> bool:
        """The same where it certainly need not wait; False where it must: `publish` is the way then.

        `later`: something follows in this turn of the loop, and goes in the same write.
        """
        self.check(subject, len(data))
        if not self.connected or not self._nc.flowing:
            return False
        self._nc.send_now(subject, data, reply, later)
        return True

    async def flush(self, timeout: float = 5) -> None:
        """Wait until the server has seen all that was published before. Raises Unavailable."""
        try:
            # nats-py writes its ping past what waits to be written: that must go first.
            await heeding(self._nc._flush_pending(force_flush=True))
            await heeding(self._nc.flush(timeout=timeout))  # type: ignore[arg-type]  # it takes any number
        except (NatsError, OSError, TimeoutError) as exc:
            raise Unavailable(f"the broker does not answer: {exc}") from exc

    async def request(
        self, subject: str, data: bytes, timeout: float, headers: dict[str, str] | None = None
    ) -> Received:
        """One answer, in time. Raises NoResponders, FateUnknown (at the disconnect), TimedOut, Unavailable."""
        with self._awaited.one(timeout) as (token, answer):
            reply = f"{self._inbox}.{token}"
            if headers is not None or not self.publish_quickly(subject, data, reply):
                try:
                    async with asyncio.timeout(timeout):
                        await self.publish(subject, data, reply, headers)
                except TimeoutError as exc:
                    raise TimedOut(f"no answer within {timeout:g} s") from exc
            received = await answer
        if nobody(received):
            raise NoResponders("nobody is there")
        return received

    def ask(self, subject: str, data: bytes, timeout: float, then: Answered) -> bool:
        """`request` without a task: `then` is called once, with the answer or with what `request` would raise.

        False where it cannot be sent at once: `request` is the way then, and `then` is not called.
        """
        token = self._awaited.token()
        if not self.publish_quickly(subject, data, f"{self._inbox}.{token}", later=True):
            return False
        self._awaited.call(token, timeout, then)
        return True

    @contextlib.asynccontextmanager
    async def exchange(self, subject: str, data: bytes) -> AsyncIterator[Exchange]:
        """A request that is answered by several messages, until the block is left. Raises Unavailable."""
        with self._awaited.several() as (token, exchange):
            await self.publish(subject, data, f"{self._inbox}.{token}")
            yield exchange

    # Subscribing

    async def subscribe(
        self,
        subject: str,
        handler: Callable[[Received], None],
        *,
        queue: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> Subscription:
        """Call a plain function for each message, in order. `on_lost`: the link was down, messages may be missing.

        It is called where the message is read: none is dropped, and all that follow wait for the function.
        """
        subscription = Subscription(self, handler, on_lost)
        await subscription._start(subject, queue)
        return subscription

    @contextlib.asynccontextmanager
    async def following(self, subject: str, bound: int = FOLLOWED_BYTES) -> AsyncIterator[Following]:
        """All messages of a subject, handed out as lists. Bounded: above `bound` bytes all is dropped, and told."""
        following = Following(bound, BUS_DROPPED.labels(connection=self.settings.name).inc)
        subscription = await self.subscribe(subject, following.put, on_lost=following.lose)
        try:
            yield following
        finally:
            await subscription.close()

    async def serve(
        self,
        subject: str,
        handler: Callable[[Received], Awaitable[bytes | None] | bytes | None],
        *,
        queue: str = "",
        limit: int = 256,
    ) -> Server:
        """Answer requests concurrently, `limit` at a time; above it the answer is `busy`. None = stay silent.

        A plain function that answers at once makes no task.
        """
        server = Server(self, handler, limit)
        server._subscription = await self.subscribe(subject, server._received, queue=queue)
        return server

    # Life

    async def _open(self) -> None:
        for wait in delays(random.random, 0.05, 2):
            try:
                await heeding(self._connect())
                break
            except (TimeoutError, OSError, NatsError) as exc:
                await self._failed(exc)
            except BaseException:
                await self._nc.close()
                raise
            await heeding(self._nc.close())
            self._nc = NatsClient()
            await asyncio.sleep(wait)
        self._nc.options["allow_reconnect"] = True
        self._inbox = self.inbox()
        answers = await heeding(self._nc.subscribe(f"{self._inbox}.*", cb=unused))
        self._nc.direct[answers._id] = self._awaited.heard
        self._complaint = ""
        self._opened = True
        self._connected.set()

    async def _connect(self) -> None:
        settings = self.settings
        await self._nc.connect(
            servers=settings.url.split(","),
            name=settings.name,
            user=settings.user,
            password=self._password,  # type: ignore[arg-type]  # it calls what can be called
            inbox_prefix=settings.inbox_prefix,
            ping_interval=settings.ping_interval,  # type: ignore[arg-type]  # it takes any number
            max_outstanding_pings=settings.max_outstanding_pings,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.1,  # type: ignore[arg-type]
            connect_timeout=3,
            flush_timeout=2,  # a publish waits no longer for a server that does not read
            allow_reconnect=False,  # not before the first connection: it would hide a refused login
            skip_subject_validation=True,  # `check` has done it
            error_cb=self._failed,
            disconnected_cb=self._went_down,
            reconnected_cb=self._came_back,
            closed_cb=self._ended,
        )

    def _password(self) -> str | None:
        file = self.settings.password_file
        return self.settings.password if file is None else Path(file).read_text().strip()

    async def _failed(self, exc: Exception) -> None:
        if repr(exc) != self._complaint:  # said once, not at each of ten attempts a second
            self._complaint = repr(exc)
            log.warning("broker connection", connection=self.settings.name, error=self._complaint)

    async def _went_down(self) -> None:
        if not self._connected.is_set():
            return
        self._connected.clear()
        self._nc.forget_unsent()
        self._awaited.lost()
        if not self._closing:
            log.warning("the broker went away", connection=self.settings.name)
        self._tell(self._on_disconnect)

    async def _came_back(self) -> None:
        BUS_RECONNECTS.labels(connection=self.settings.name).inc()
        log.info("the broker is back", connection=self.settings.name)
        self._complaint = ""
        self._connected.set()
        self._tell([subscription._lost for subscription in self._subscriptions.values()])
        self._tell(self._on_reconnect)

    def _tell(self, callbacks: Sequence[Callable[[], None]]) -> None:
        for callback in list(callbacks):
            try:
                callback()
            except Exception:  # it would end nats-py's own tasks, and nobody would hear of it
                log.exception("a callback of the bus failed")

    async def _ended(self) -> None:
        if self._opened and not self._closing:
            log.error("the broker connection ended for good", connection=self.settings.name)

    async def _close(self) -> None:
        self._closing = True
        self._awaited.close()
        if self.connected:
            with contextlib.suppress(NatsError, asyncio.TimeoutError, OSError):
                await self._nc.flush(timeout=2)
        await heeding(self._nc.close())


@contextlib.asynccontextmanager
async def connect(settings: BusSettings) -> AsyncIterator[Bus]:
    """A connection, once there is one: waits for a broker that is not there yet, for ever."""
    bus = Bus(settings)
    await bus._open()
    try:
        with BUS.of(bus):
            yield bus
    finally:
        await bus._close()
