"""A session's owner in a few lines: numbers events, publishes batches, answers commands as a test says.

It stands in for the streams service: records, openings, batches and replies are the real formats on a real broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import orjson
from tieline_protocol import bus as buses
from tieline_protocol import jetstream, jsontext, streams, subjects
from tieline_protocol.batch import Batch, Framer, encode
from tieline_protocol.bus import Bus, BusSettings, Received
from tieline_protocol.cursor import Cursor
from tieline_protocol.errors import TielineError
from tieline_protocol.messages import Request, SessionRecord, answer, refusal

Reply = dict[str, Any] | bytes | TielineError | None
Handler = Callable[[Request], Awaitable[Reply]]

LOGS = ("agent", "workspace")


class OwnedLog:
    """One log, as its owner writes it."""

    def __init__(self, bus: Bus, user: str, session: str, log: str) -> None:
        self.epoch = self.last = self.confirmed = self.at = 0
        self._bus = bus
        self._user, self._session, self._log = user, session, log
        self._framer = Framer(session, log)

    async def open(self, epoch: int, previous: int = 0, last: int = 0, clean: bool = True) -> None:
        self.epoch, self.last, self.confirmed = epoch, 0, 0
        await self.emit({"type": "epoch", "previous": previous, "last": last, "clean": clean})

    def batch(self, *events: dict[str, Any] | bytes) -> tuple[str, Batch]:
        """The next batch (all of one type) and its type; it gets its offsets here."""
        texts = [event if isinstance(event, bytes) else orjson.dumps(event) for event in events]
        kind = jsontext.loads(texts[0])["type"]
        first = self.last + 1
        now = int(time.time() * 1000)
        frames = b"".join(
            self._framer.frame(Cursor(self.epoch, first + n, self.at), now, text)
            for n, text in enumerate(texts)
        )
        self.last += len(texts)
        return kind, Batch(self.epoch, first, len(texts), self.at, frames)

    async def emit(self, *events: dict[str, Any] | bytes, confirm: bool = True) -> Batch:
        """Publish one batch; with `confirm` it is stored when this returns."""
        kind, batch = self.batch(*events)
        await self.send(kind, batch, confirm)
        return batch

    async def send(self, kind: str, batch: Batch, confirm: bool = True) -> None:
        subject = subjects.event(self._user, self._session, self._log, kind)
        if confirm:
            seq = await jetstream.publish(self._bus, subject, encode(batch))
            self.confirmed, self.at = batch.last, seq
        else:
            await self._bus.publish(subject, encode(batch))

    def head(self) -> dict[str, int]:
        return {"epoch": self.epoch, "last": self.last, "confirmed": self.confirmed, "at": self.at}


class Owner:
    """Made by `owning`. `handlers` answer commands by action; the default answers with what it was asked."""

    def __init__(self, bus: Bus, bulk: Bus, user: str, session: str) -> None:
        self.bus = bus
        self.user, self.session = user, session
        self.epoch = 0
        self.logs = {
            "agent": OwnedLog(bus, user, session, "agent"),
            "workspace": OwnedLog(bulk, user, session, "workspace"),
        }
        self.handlers: dict[str, Handler] = {}
        self.asked: list[tuple[str, Request]] = []
        self.silent = False
        self._server: buses.Server | None = None

    @property
    def agent(self) -> OwnedLog:
        return self.logs["agent"]

    @property
    def workspace(self) -> OwnedLog:
        return self.logs["workspace"]

    async def record(self, **fields: Any) -> None:
        """Write the session's record."""
        now = int(time.time() * 1000)
        record = SessionRecord(
            **{
                "session": self.session,
                "user": self.user,
                "executor": "static",
                "agent": "example",
                "workspace": "w",
                "created": now,
                "updated": now,
                "state": "ready",
                **fields,
            }
        )
        bucket = jetstream.Bucket(self.bus, subjects.BUCKET_SESSIONS)
        await bucket.put(subjects.session_key(self.user, self.session), record.encode())

    async def take(self, clean: bool = True, logs: Sequence[str] = LOGS) -> None:
        """Become the owner: a new epoch, an opening in each log."""
        bucket = jetstream.Bucket(self.bus, subjects.BUCKET_OWNERS)
        self.epoch = await bucket.put(self.session, b'{"holder":"test"}')
        for name in logs:
            log = self.logs[name]
            await log.open(self.epoch, log.epoch, log.last, clean)

    async def serve(self) -> None:
        """Answer commands."""
        self._server = await self.bus.serve(subjects.commands(self.user, self.session), self._handle)
        await self.bus.flush()

    async def leave(self) -> None:
        """Answer no more."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.close()
            await self.bus.flush()

    async def _handle(self, received: Received) -> bytes | None:
        action = subjects.command_action(received.subject)
        request = Request.decode(received.data)
        if self.silent:
            return None
        if action == subjects.HEAD:
            return answer({name: log.head() for name, log in self.logs.items()})
        self.asked.append((action, request))
        handler = self.handlers.get(action)
        reply: Reply = (
            {"action": action, "got": request.payload} if handler is None else await handler(request)
        )
        if isinstance(reply, TielineError):
            return refusal(reply)
        return answer(reply) if reply is not None else None


@contextlib.asynccontextmanager
async def owning(
    url: str, user: str = "ada", session: str = "s1", *, open: bool = True
) -> AsyncIterator[Owner]:
    """An owner that has taken its session and answers; `open=False`: only connected."""
    async with (
        buses.connect(BusSettings(url, "owner")) as bus,
        buses.connect(BusSettings(url, "owner-workspace")) as bulk,
    ):
        await streams.ensure(bus, streams.StreamLimits())
        owner = Owner(bus, bulk, user, session)
        if open:
            await owner.record()
            await owner.take()
            await owner.serve()
        try:
            yield owner
        finally:
            await owner.leave()


@contextlib.asynccontextmanager
async def serving(url: str, endpoint: str, handler: Handler) -> AsyncIterator[list[Request]]:
    """A service endpoint of streams; yields what it was asked."""
    asked: list[Request] = []

    async def handle(received: Received) -> bytes | None:
        request = Request.decode(received.data)
        asked.append(request)
        reply = await handler(request)
        if isinstance(reply, TielineError):
            return refusal(reply)
        return answer(reply) if reply is not None else None

    async with buses.connect(BusSettings(url, "fake streams")) as bus:
        server = await bus.serve(subjects.rpc_endpoint("streams", endpoint), handle, queue="streams")
        await bus.flush()
        try:
            yield asked
        finally:
            await server.close()


async def settle() -> None:
    """Let what is ready to run, run."""
    for _ in range(5):
        await asyncio.sleep(0)
