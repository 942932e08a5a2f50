"""How far a log is: from its owner, or from the log itself where nobody owns it. And the records of sessions."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

import structlog
from tieline_protocol import batch as batches
from tieline_protocol import jetstream, subjects
from tieline_protocol.bus import Bus
from tieline_protocol.cursor import Cursor
from tieline_protocol.errors import (
    BadMessage,
    FateUnknown,
    NoResponders,
    Refused,
    TimedOut,
)
from tieline_protocol.joining import Opening, head_of_log
from tieline_protocol.messages import LogHead, Request, SessionRecord, outcome
from tieline_protocol.reader import Head

log = structlog.get_logger()

_OWNER_SECONDS = 2.0  # an owner that may not act stays silent


@dataclass(frozen=True, slots=True)
class LogKey:
    """One log of one session or thread."""

    user: str
    session: str
    log: str

    @property
    def stream(self) -> str:
        return subjects.stream_of(self.log)

    @property
    def events(self) -> str:
        return subjects.log_events(self.user, self.session, self.log)

    def of_type(self, type: str) -> str:
        return subjects.event(self.user, self.session, self.log, type)


@dataclass(frozen=True, slots=True)
class Found:
    """A head, and the newest place up to which all is certainly stored. `owned`: an owner said it."""

    head: Head
    safe: Cursor
    owned: bool


class Reads:
    """Reads of logs: a few at a time, on a connection of their own, each tried once more after a second."""

    def __init__(self, bus: Bus, at_once: int) -> None:
        self.bus = bus
        self._turns = asyncio.Semaphore(at_once)

    async def page(self, key: LogKey, seq: int, max_bytes: int) -> jetstream.Page:
        """Messages of a log from `seq` on. Raises Unavailable."""
        async with self._turns:
            try:
                return await jetstream.read(self.bus, key.stream, key.events, seq, max_bytes)
            except (TimedOut, NoResponders, FateUnknown):
                await asyncio.sleep(1)
                return await jetstream.read(self.bus, key.stream, key.events, seq, max_bytes)

    async def values(self, key: LogKey, wanted: list[str], up_to: int) -> list[jetstream.Stored]:
        """The newest message of each subject, at or before `up_to`. Raises Unavailable."""
        async with self._turns:
            try:
                page = await jetstream.read_last(self.bus, key.stream, wanted, up_to)
            except (TimedOut, NoResponders, FateUnknown):
                await asyncio.sleep(1)
                page = await jetstream.read_last(self.bus, key.stream, wanted, up_to)
        return page.messages

    async def openings(self, key: LogKey) -> list[Opening]:
        """The openings that are kept, in stream order, as one replica knows them. Raises Unavailable."""
        found: list[Opening] = []
        seq = 1
        async with self._turns:
            while True:
                page = await jetstream.read(self.bus, key.stream, key.of_type("epoch"), seq)
                found += [Opening(stored.seq, batches.decode(stored.data).epoch) for stored in page.messages]
                if not page.more:
                    return found
                seq = page.messages[-1].seq + 1


class Records:
    """The records of sessions and threads, read from the leader; and who owns them."""

    def __init__(self, bus: Bus) -> None:
        self._records = jetstream.Bucket(bus, subjects.BUCKET_SESSIONS)
        self._threads = jetstream.Bucket(bus, subjects.BUCKET_THREADS)
        self._owners = jetstream.Bucket(bus, subjects.BUCKET_OWNERS)

    async def record(self, user: str, session: str) -> SessionRecord | None:
        """Raises Unavailable."""
        entry = await self._records.get(subjects.session_key(user, session))
        return SessionRecord.decode(entry.value) if entry is not None else None

    async def exists(self, user: str, id: str, log: str) -> bool:
        """Whether a user has the session or thread that a log belongs to. Raises Unavailable."""
        if log == "thread":
            return await self._threads.get(subjects.thread_key(user, id)) is not None
        return await self.record(user, id) is not None

    async def final(self, user: str, id: str, log: str) -> bool:
        """Whether nothing will be added to a log any more. Raises Unavailable."""
        if log == "thread":  # it sleeps until somebody writes
            return not await self.exists(user, id, log)
        return ended(await self.record(user, id))

    async def owner(self, session: str) -> int:
        """The epoch of the owner of a session or thread; 0 where nobody ever owned it. Raises Unavailable."""
        entry = await self._owners.get(session)
        return entry.revision if entry is not None else 0


def ended(record: SessionRecord | None) -> bool:
    """Whether nothing will be added to a session any more."""
    return record is None or record.state in ("closed", "failed")


class Heads:
    """Asks for heads."""

    def __init__(self, bus: Bus, reads: Reads, records: Records) -> None:
        self._bus = bus
        self._reads = reads
        self._records = records

    async def ask(self, key: LogKey) -> Found:
        """How far a log is now. Raises Unavailable."""
        request = Request(
            id=secrets.token_urlsafe(12), user=key.user, budget_ms=int(_OWNER_SECONDS * 1000), payload={}
        )
        subject = subjects.command(key.user, key.session, subjects.HEAD)
        try:
            reply = await self._bus.request(subject, request.encode(), _OWNER_SECONDS)
            told = LogHead.model_validate(outcome(reply.data)[key.log])
            if told.confirmed:
                head = Head(told.epoch, told.last, told.confirmed, told.at)
                return Found(head, Cursor(told.epoch, told.confirmed, told.at), True)
        except (NoResponders, TimedOut):
            pass
        except (Refused, BadMessage, KeyError, ValueError) as exc:
            log.warning("an owner's head cannot be used", session=key.session, error=str(exc))
        return await self._kept(key)

    async def _kept(self, key: LogKey) -> Found:
        """The end of a log that nobody speaks for, from the stream's leader."""
        closed = await self._records.final(key.user, key.session, key.log)
        bus = self._reads.bus
        last = await jetstream.last_message(bus, key.stream, key.events)
        if last is None:
            return Found(Head(0, 0, 0, 0, closed), Cursor(0, 0, 0), False)
        batch = batches.decode(last.data)
        openings = await self._reads.openings(key)
        head = head_of_log(last.seq, batch, openings, closed=closed)
        if head.epoch > batch.epoch:  # what stands last was written by an owner that had been replaced
            opened = next(opening.seq for opening in openings if opening.epoch == head.epoch)
            return Found(head, Cursor(head.epoch, 1, opened), False)
        if closed:
            return Found(head, Cursor(batch.epoch, batch.last, last.seq), False)
        confirmed = await jetstream.first_message(bus, key.stream, key.events, batch.at) if batch.at else None
        if confirmed is not None and confirmed.seq == batch.at:
            known = batches.decode(confirmed.data)
            if known.epoch == batch.epoch:
                return Found(head, Cursor(known.epoch, known.last, confirmed.seq), False)
        return Found(head, Cursor(batch.epoch, batch.first - 1, batch.at), False)
