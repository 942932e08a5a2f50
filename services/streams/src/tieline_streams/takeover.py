"""Sessions that another process has left: found, and taken where somebody wants them. Whether one may be taken, and
what for: taking.py."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping

import structlog
from tieline_protocol import ownership, subjects
from tieline_protocol.bus import Received, Subscription
from tieline_protocol.errors import BadMessage, TielineError, Unavailable
from tieline_protocol.jetstream import Entry, WrongRevision
from tieline_protocol.messages import OwnerRecord, SessionRecord

from tieline_streams import taking
from tieline_streams.lives import Lives
from tieline_streams.metrics import TAKEN
from tieline_streams.ownership import Parts, Taken
from tieline_streams.places import Places
from tieline_streams.session import Session
from tieline_streams.taking import Aim

log = structlog.get_logger()

_HEARD = 65_536


class Takeover:
    """Once `listen` is called, `follow` and `sweep` are its work."""

    def __init__(self, parts: Parts, lives: Lives, places: Places) -> None:
        self._parts = parts
        self._lives = lives
        self._places = places
        self._released: set[str] = set()
        self._heard = asyncio.Event()
        self._look = asyncio.Event()

    async def listen(self) -> Subscription:
        """Hear of every owner key that is written."""
        keys = subjects.bucket_key(subjects.BUCKET_OWNERS, "*")
        return await self._parts.bus.subscribe(keys, self._owner_wrote, on_lost=self.look)

    def look(self) -> None:
        """There may be sessions without an owner."""
        self._look.set()

    async def recover_instances(self) -> None:
        """Take every session that nobody owns and somebody wants: it goes on here. Raises Unavailable."""
        owners = {entry.key: entry for entry in await self._parts.owners.entries("*")}
        entries = await self._parts.sessions.entries(subjects.session_keys())
        random.shuffle(entries)  # other replicas look too
        for entry in entries:
            await self._consider(entry, owners)

    async def _consider(self, entry: Entry, owners: Mapping[str, Entry]) -> None:
        try:
            record = SessionRecord.decode(entry.value)
        except BadMessage as exc:
            log.error("a session's record cannot be read", key=entry.key, error=exc.message)
            return
        id, parts, lives = record.session, self._parts, self._lives
        if lives.here(id) or lives.stopping or not parts.lease.may_act():
            return
        found = owners.get(id)
        left = lives.left.get(id)
        if left is not None and (found is None or found.revision != left.epoch):
            lives.left.pop(id).forget()  # somebody else has it, or had it
        owner = OwnerRecord.decode(found.value) if found is not None else None
        wanted = taking.aim(record, owner, int(time.time() * 1000))
        if wanted is Aim.LEAVE or not taking.may_take(owner, parts.lease.id, await self._held(owner)):
            return
        lives.making.add(id)
        try:
            await self._take(record, found.revision if found is not None else 0, owner, wanted)
        except WrongRevision:
            log.debug("another process was quicker", session=id)
        except Unavailable as exc:  # looked at again: it is ours, or nobody's
            log.info("a session could not be taken", session=id, error=exc.message)
        finally:
            lives.making.discard(id)

    async def _held(self, owner: OwnerRecord | None) -> bool:
        """Whether the leader has the holder's process key."""
        if owner is None or owner.released or not owner.holder or owner.holder == self._parts.lease.id:
            return False
        return await self._parts.processes.get(subjects.process_key(owner.holder)) is not None

    async def _take(
        self, record: SessionRecord, revision: int, owner: OwnerRecord | None, wanted: Aim
    ) -> None:
        parts, id = self._parts, record.session
        place = await self._places.of(record)
        epoch = await ownership.take(parts.owners, id, parts.lease.id, revision)
        if self._lives.stopping or not parts.lease.may_act():
            await self._lives.abandon(id, epoch)
            return
        clean = owner is None or owner.released
        left = self._lives.left.pop(id, None)
        reason = record.reason or (
            "the service stopped while the session opened" if wanted is Aim.FAIL else None
        )
        TAKEN.labels(aim=wanted.value, clean=str(clean).lower()).inc()
        log.info("a session is taken", session=id, clean=clean, aim=wanted.value)
        taken = Taken(clean, wanted, reason, left.settle if left is not None else None)
        self._lives.begin(Session(parts, record, epoch, place, taken), epoch)

    def _owner_wrote(self, received: Received) -> None:
        """Any owner wrote its key: where it has released it, somebody may take it at once."""
        try:
            released = OwnerRecord.decode(received.data).released
        except BadMessage:
            return
        if released and not self._lives.stopping and len(self._released) < _HEARD:
            self._released.add(received.subject.rpartition(".")[2])
            self._heard.set()

    async def follow(self) -> None:
        """Take what was released a moment ago."""
        owners = self._parts.owners
        while True:
            await self._heard.wait()
            self._heard.clear()
            released, self._released = self._released, set()
            for id in released - self._lives.sessions.keys():
                try:
                    found = await owners.get(id)
                    if found is not None:
                        for entry in await self._parts.sessions.entries(subjects.session_keys_of(id)):
                            await self._consider(entry, {id: found})
                except TielineError as exc:
                    log.info("a released session could not be looked at", session=id, error=exc.message)

    async def sweep(self) -> None:
        """Look through all sessions: at the start, when a process has ended, and now and then."""
        while True:
            try:
                await self.recover_instances()
            except TielineError as exc:
                log.info("sessions could not be looked through", error=exc.message)
            try:
                async with asyncio.timeout(self._parts.config.limits.sweep):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()
