"""All sessions of this process: opening, listing, and what is asked about sessions that nobody owns.

Where takeover, leases and recovery will live: `recover` finds sessions without an owner and, today, only ends them.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any

import structlog
from tieline_protocol import batch, jetstream, ownership, subjects
from tieline_protocol.bus import Server
from tieline_protocol.errors import BadMessage, Code, Refused, TielineError, Unavailable
from tieline_protocol.jetstream import WrongRevision
from tieline_protocol.messages import InstanceRecord, OwnerRecord, Request, SessionRecord
from tieline_protocol.ownership import announce

from tieline_streams import executors, payloads, views
from tieline_streams.commands import Commands
from tieline_streams.executors import Executor
from tieline_streams.metrics import SESSIONS
from tieline_streams.ownership import Found, Parts, Place
from tieline_streams.payloads import read
from tieline_streams.session import Session
from tieline_streams.turn import open_turns

log = structlog.get_logger()

_LOOK = 0.25
_COMMANDS = 8_192  # requests at once that a session takes in: a thousand keys typed ahead are one burst


class Sessions:
    """Use as `async with`; leaving the block releases every session."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._group = asyncio.TaskGroup()
        self._sessions: dict[str, Session] = {}
        self._opens: dict[str, Session] = {}  # those of them that were opened here
        self._making: set[str] = set()  # begun here, and not owned yet
        self._executors: dict[str, Executor] = {
            name: executors.make(settings) for name, settings in parts.config.executors.executors.items()
        }
        self._stopping = False

    async def __aenter__(self) -> Sessions:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        for session in list(self._sessions.values()):
            session.end("released")
        await self._group.__aexit__(kind, exc, trace)

    def stop_opening(self) -> None:
        """The service stops: whoever waits for a session to open is told now, and what was begun is undone."""
        self._stopping = True
        for session in self._opens.values():
            if not session.opened.done():
                session.end("failed", "the service stopped while the session opened")

    def __len__(self) -> int:
        return len(self._sessions)

    # Service endpoints

    async def open(self, request: Request) -> dict[str, Any]:
        """Make a session and start it; answers when it is ready. Raises TielineError."""
        id = payloads.session_of(request)
        session = self._opens.get(id)
        if session is None:
            if id in self._making or id in self._sessions:
                return await self._opened_elsewhere(request, id)
            self._making.add(id)
            try:
                session = await self._make(request, id)
            except WrongRevision:  # another process has begun it, or it is over already
                return await self._opened_elsewhere(request, id)
            finally:
                self._making.discard(id)
        await asyncio.shield(session.opened)
        return {"session_id": session.id, "state": session.state}

    async def _opened_elsewhere(self, request: Request, id: str) -> dict[str, Any]:
        """What became of an open that is asked about again. Raises TielineError."""
        key, named = subjects.session_key(request.user, id), {"session_id": id}
        try:
            async with asyncio.timeout(max(request.budget_ms, 0) / 1000):
                while True:
                    entry = await self._parts.sessions.get(key)
                    if entry is None and id not in self._making:
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

    async def list(self, request: Request) -> dict[str, Any]:
        wanted = read(payloads.List, request.payload)
        entries = await self._parts.sessions.entries(subjects.session_keys(request.user))
        return views.page(
            [SessionRecord.decode(entry.value) for entry in entries], wanted.after, wanted.limit
        )

    async def get(self, request: Request) -> dict[str, Any]:
        """What the record says, whoever owns the session: whoever asks here has asked its owner in vain."""
        record, _ = await self._stored(request)
        return views.detailed(record, {}, None)

    async def close(self, request: Request) -> dict[str, Any]:
        """A session that has ended already needs no ending; that nobody wants it any more is written down."""
        record, revision = await self._unowned(request)
        if record.wanted != "closed":
            await self._rewrite(record, revision, wanted="closed")
        return {}

    async def rename(self, request: Request) -> dict[str, Any]:
        record, revision = await self._unowned(request)
        await self._rewrite(record, revision, title=read(payloads.Rename, request.payload).title)
        return {}

    async def _unowned(self, request: Request) -> tuple[SessionRecord, int]:
        record, revision = await self._stored(request)
        owned = self._sessions.get(record.session)
        if owned is not None and not owned.finished.is_set():
            raise Refused(Code.CONFLICT, "the session has an owner: ask it")
        return record, revision

    async def _stored(self, request: Request) -> tuple[SessionRecord, int]:
        id = read(payloads.Which, request.payload).session_id
        if not subjects.is_id(id):
            raise Refused(Code.NOT_FOUND, "there is no such session")
        entry = await self._parts.sessions.get(subjects.session_key(request.user, id))
        if entry is None:
            raise Refused(Code.NOT_FOUND, "there is no such session")
        return SessionRecord.decode(entry.value), entry.revision

    async def _rewrite(self, record: SessionRecord, revision: int, **changes: Any) -> None:
        changed = record.model_copy(update={**changes, "updated": _now_ms()})
        key = subjects.session_key(record.user, record.session)
        await self._parts.sessions.put(key, changed.encode(), expected=revision)
        await announce(self._parts.bus, record.user, "session", record.session, "updated")

    # Owning

    async def _make(self, request: Request, id: str) -> Session:
        """Raises WrongRevision where the session is there already."""
        if self._stopping:
            raise Refused(Code.UNAVAILABLE, "the service is stopping")
        wanted = read(payloads.Open, request.payload)
        parts = self._parts
        executor, settings = parts.config.executors.executor(wanted.executor)
        agent, agent_settings = parts.config.executors.agent(wanted.agent)
        path = await asyncio.to_thread(executors.place, settings.root, wanted.workspace, id)
        now = _now_ms()
        record = SessionRecord(
            session=id,
            user=request.user,
            executor=executor,
            agent=agent,
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
        place = Place(self._executors[executor], settings.routes, path, agent_settings)
        session = Session(parts, record, epoch, place)
        self._opens[id] = session
        self._own(session)
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

    def _own(self, session: Session) -> None:
        self._sessions[session.id] = session
        SESSIONS.set(len(self._sessions))
        self._group.create_task(self._life(session), name=f"own {session.id}")

    async def _life(self, session: Session) -> None:
        try:
            server = await self._serve(session)
            try:
                await session.run()
            finally:
                await server.refuse()
                session.gone.set()
                await server.close()
        except Exception as exc:  # one session's trouble, even a mistake of ours, is not the others'
            log.exception("a session broke", session=session.id, error=repr(exc))
        finally:
            session.gone.set()
            if not session.opened.done():
                session.opened.set_exception(Unavailable("the session could not be opened"))
                session.opened.exception()  # nobody may be waiting for it
            del self._sessions[session.id]
            self._opens.pop(session.id, None)
            SESSIONS.set(len(self._sessions))

    async def _serve(self, session: Session) -> Server:
        subject = subjects.commands(session.user, session.id)
        unowned = {"session.get": self.get, "session.close": self.close, "session.rename": self.rename}
        handle = Commands(session, unowned).handle
        while True:
            try:
                return await self._parts.bus.serve(subject, handle, limit=_COMMANDS)
            except Unavailable:
                await self._parts.bus.wait_connected()

    # What an earlier process left

    async def recover(self) -> None:
        """End what is found open: its owner is gone, and nothing continues sessions yet. Raises Unavailable."""
        for entry in await self._parts.sessions.entries(subjects.session_keys()):
            try:
                record = SessionRecord.decode(entry.value)
            except BadMessage as exc:
                log.error("a session's record cannot be read", key=entry.key, error=exc.message)
                continue
            owner = await self._parts.owners.get(record.session)
            released = owner is not None and OwnerRecord.decode(owner.value).released
            if record.state in ("closed", "failed") and (released or owner is None):
                continue
            try:
                await self._end_found(record, owner.revision if owner else 0, released)
            except TielineError as exc:
                log.error("a session cannot be ended", session=record.session, error=exc.message)

    async def _end_found(self, record: SessionRecord, revision: int, released: bool) -> None:
        parts, id, user = self._parts, record.session, record.user
        epoch = await ownership.take(parts.owners, id, parts.lease.id, revision)
        instance = await parts.instances.get(id)
        turns = [
            event.event
            async for stored in jetstream.read_all(
                parts.bus, subjects.STREAM_AGENT, subjects.event(user, id, "agent", "turn")
            )
            for event in batch.events(batch.decode(stored.data))
        ]
        found = Found(
            agent=await ownership.end_of(parts.bus, user, id, "agent"),
            workspace=await ownership.end_of(parts.bus, user, id, "workspace"),
            clean=released,
            turns=tuple(open_turns(turns)[0].values()),
            instance=InstanceRecord.decode(instance.value) if instance else None,
        )
        session = Session(parts, record, epoch, self._place_of(record), found)
        if record.state == "closing" or record.wanted == "closed":
            session.end("closed")
        else:
            session.end("failed", record.reason or "the service that ran the session has ended")
        self._own(session)

    def _place_of(self, record: SessionRecord) -> Place | None:
        config = self._parts.config.executors
        try:
            name, settings = config.executor(record.executor)
            _, agent = config.agent(record.agent)
        except Refused:
            return None
        return Place(self._executors[name], settings.routes, settings.root, agent)


def _now_ms() -> int:
    return int(time.time() * 1000)
