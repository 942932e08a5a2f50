"""A session that is opened: its record, its owner key, and what whoever asked for it is told."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tieline_protocol import ownership, subjects
from tieline_protocol.errors import Code, Refused, Unavailable
from tieline_protocol.jetstream import WrongRevision
from tieline_protocol.messages import OwnerRecord, Request, SessionRecord

from tieline_streams import payloads
from tieline_streams.lives import Lives
from tieline_streams.ownership import Parts
from tieline_streams.payloads import read
from tieline_streams.places import Places
from tieline_streams.session import Session

_LOOK = 0.25


class Opening:
    def __init__(self, parts: Parts, lives: Lives, places: Places) -> None:
        self._parts = parts
        self._lives = lives
        self._places = places

    async def open(self, request: Request) -> dict[str, Any]:
        """Make a session and start it; answers when it is ready. Raises TielineError."""
        id = payloads.session_of(request)
        lives = self._lives
        session = lives.sessions.get(id)
        if session is None and id not in lives.making:
            lives.making.add(id)
            try:
                session = await self._make(request, id)
            except WrongRevision:  # another process has begun it, or it is over already
                pass
            finally:
                lives.making.discard(id)
        if session is None or session.taken:
            return await self._opened_elsewhere(request, id)
        await session.opened.wait()
        return {"session_id": session.id, "state": session.state}

    async def _opened_elsewhere(self, request: Request, id: str) -> dict[str, Any]:
        """What became of an open that is asked about again. Raises TielineError."""
        key, named = subjects.session_key(request.user, id), {"session_id": id}
        try:
            async with asyncio.timeout(max(request.budget_ms, 0) / 1000):
                while True:
                    entry = await self._parts.sessions.get(key)
                    if entry is None and id not in self._lives.making:
                        raise Unavailable("the session could not be opened", details=named)
                    record = SessionRecord.decode(entry.value) if entry is not None else None
                    if record is not None and record.state == "ready":
                        return {"session_id": id, "state": record.state}
                    if record is not None and record.state != "opening":
                        why = record.reason or "the session was closed while it opened"
                        raise Unavailable(why, details=named)
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            raise Unavailable("the session is not ready in time", details=named) from None

    async def _make(self, request: Request, id: str) -> Session:
        """Raises WrongRevision where the session is there already."""
        if self._lives.stopping:
            raise Refused(Code.UNAVAILABLE, "the service is stopping")
        wanted = read(payloads.Open, request.payload)
        found = await self._places.find(wanted.executor, wanted.agent, wanted.workspace, id)
        now = int(time.time() * 1000)
        record = SessionRecord(
            session=id,
            user=request.user,
            executor=found.executor,
            agent=found.agent,
            workspace=wanted.workspace or id,
            title=wanted.title,
            remotes=wanted.remotes,
            created=now,
            updated=now,
        )
        try:
            async with asyncio.timeout(max(request.budget_ms, 0) / 1000):
                epoch = await self._begun(record)
        except TimeoutError:
            raise Unavailable("the session could not be stored in time") from None
        session = Session(self._parts, record, epoch, found.place)
        self._lives.begin(session, epoch)
        return session

    async def _begun(self, record: SessionRecord) -> int:
        """The epoch of a session whose record is new, or was left before it was taken. Raises WrongRevision."""
        parts, id = self._parts, record.session
        key = subjects.session_key(record.user, id)
        try:
            await ownership.insist(lambda: parts.sessions.put(key, record.encode(), expected=0))
        except WrongRevision:
            if await ownership.insist(lambda: parts.owners.get(id)) is not None:
                raise
        try:
            return await ownership.insist(lambda: ownership.take(parts.owners, id, parts.lease.id, 0))
        except WrongRevision:
            # The first try may have been stored although its answer was lost.
            entry = await ownership.insist(lambda: parts.owners.get(id))
            if entry is None or OwnerRecord.decode(entry.value) != OwnerRecord(holder=parts.lease.id):
                raise
            return entry.revision
