"""All sessions of this process: opening, listing, and what is asked about sessions that nobody owns; taking those that
another process has left."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import structlog
from tieline_protocol import ownership, subjects
from tieline_protocol.bus import Received, Server, Subscription
from tieline_protocol.errors import BadMessage, Code, Refused, TielineError, Unavailable
from tieline_protocol.jetstream import Entry, WrongRevision
from tieline_protocol.messages import OwnerRecord, Request, SessionRecord
from tieline_protocol.ownership import announce

from tieline_streams import executors, payloads, taking, views
from tieline_streams.commands import Commands
from tieline_streams.executors import Executor
from tieline_streams.metrics import SESSIONS
from tieline_streams.ownership import Parts, Place, Taken
from tieline_streams.payloads import read
from tieline_streams.session import Session
from tieline_streams.taking import Aim

log = structlog.get_logger()

_LOOK = 0.25
_WATCH = 0.25
_QUIETLY = 5.0  # s that commands wait for an owner that is still finding out
_LAST_COMMANDS = 0.3
_HEARD = 65_536
_COMMANDS = 8_192  # requests at once that a session takes in: a thousand keys typed ahead are one burst


class Sessions:
    """Use as `async with`; leaving the block hands every session over."""

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
        self._loop = asyncio.get_running_loop()
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._servers: dict[str, Server] = {}
        self._released: set[str] = set()
        self._heard = asyncio.Event()
        self._look = asyncio.Event()
        self._background: list[asyncio.Task[None]] = []
        self._hearing: Subscription | None = None

    async def __aenter__(self) -> Sessions:
        await self._group.__aenter__()
        keys = subjects.bucket_key(subjects.BUCKET_OWNERS, "*")
        self._hearing = await self._parts.bus.subscribe(keys, self._owner_wrote, on_lost=self._look.set)
        for work, name in (
            (self._sweep(), "sessions without an owner"),
            (self._follow(), "sessions that were released"),
            (self._heed_lease(), "lease"),
        ):
            self._background.append(self._group.create_task(work, name=name))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        for task in self._background:
            task.cancel()
        if self._hearing is not None:
            await self._hearing.close()
        log.info("giving sessions up", sessions=len(self._sessions))
        await asyncio.gather(*(self._hand_over(session) for session in list(self._sessions.values())))
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
                session = None
            finally:
                self._making.discard(id)
            if session is None:
                return await self._opened_elsewhere(request, id)
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
        self._own(session, epoch)
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

    def _own(self, session: Session, epoch: int) -> None:
        self._sessions[session.id] = session
        SESSIONS.set(len(self._sessions))
        life = self._group.create_task(self._life(session, epoch), name=f"own {session.id}")
        self._lives[session.id] = life

    async def _life(self, session: Session, epoch: int) -> None:
        running = asyncio.create_task(session.run(), name=f"session {session.id}")
        try:
            if session.taken:  # whoever asks before it can be answered asks again
                ready = asyncio.create_task(session.ready.wait(), name=f"ready {session.id}")
                await asyncio.wait((running, ready), timeout=_QUIETLY, return_when=asyncio.FIRST_COMPLETED)
                ready.cancel()
            server = await self._serve(session)
            self._servers[session.id] = server
            try:
                await running
            finally:
                await server.refuse()
                session.gone.set()
                await server.close()
        except Exception as exc:  # one session's trouble, even a mistake of ours, is not the others'
            log.exception("a session broke", session=session.id, error=repr(exc))
            await self._abandon(session.id, epoch)
        finally:
            session.cut()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            session.gone.set()
            if not session.opened.done():
                session.opened.set_exception(Unavailable("the session could not be opened"))
                session.opened.exception()  # nobody may be waiting for it
            del self._sessions[session.id], self._lives[session.id]
            self._servers.pop(session.id, None)
            self._opens.pop(session.id, None)
            SESSIONS.set(len(self._sessions))

    async def _abandon(self, id: str, epoch: int) -> None:
        """Whoever looks next may take it, and says that it was not given up in order."""
        try:
            await self._parts.owners.put(id, OwnerRecord(holder="").encode(), expected=epoch)
        except TielineError as exc:
            log.warning("a session could not be given up", session=id, error=exc.message)

    async def _hand_over(self, session: Session) -> None:
        """Hear no more commands, let those that came be answered, then give it up."""
        server = self._servers.get(session.id)
        if session.state == "opening":
            session.end("failed", "the service stopped while the session opened")
        if server is not None:
            await server.refuse()
            until = self._loop.time() + _LAST_COMMANDS
            while server.in_flight and self._loop.time() < until:
                await asyncio.sleep(0.01)
        session.end("released")

    async def _serve(self, session: Session) -> Server:
        subject = subjects.commands(session.user, session.id)
        unowned = {"session.get": self.get, "session.close": self.close, "session.rename": self.rename}
        handle = Commands(session, unowned).handle
        while True:
            try:
                return await self._parts.bus.serve(subject, handle, limit=_COMMANDS)
            except Unavailable:
                await self._parts.bus.wait_connected()

    # What others have left

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
        id, parts = record.session, self._parts
        if id in self._sessions or id in self._making or self._stopping or not parts.lease.may_act():
            return
        found = owners.get(id)
        owner = OwnerRecord.decode(found.value) if found is not None else None
        wanted = taking.aim(record, owner, _now_ms())
        if wanted is Aim.LEAVE or not taking.may_take(owner, parts.lease.id, await self._held(owner)):
            return
        self._making.add(id)
        try:
            await self._take(record, found.revision if found is not None else 0, owner, wanted)
        except WrongRevision:
            log.debug("another process was quicker", session=id)
        except Unavailable as exc:  # looked at again: it is ours, or nobody's
            log.info("a session could not be taken", session=id, error=exc.message)
        finally:
            self._making.discard(id)

    async def _held(self, owner: OwnerRecord | None) -> bool:
        """Whether the leader has the holder's process key."""
        if owner is None or owner.released or not owner.holder or owner.holder == self._parts.lease.id:
            return False
        return await self._parts.processes.get(subjects.process_key(owner.holder)) is not None

    async def _take(
        self, record: SessionRecord, revision: int, owner: OwnerRecord | None, wanted: Aim
    ) -> None:
        parts, id = self._parts, record.session
        place = await self._place_of(record)
        epoch = await ownership.take(parts.owners, id, parts.lease.id, revision)
        if self._stopping or not parts.lease.may_act():
            await self._abandon(id, epoch)
            return
        clean = owner is None or owner.released
        reason = record.reason or (
            "the service stopped while the session opened" if wanted is Aim.FAIL else None
        )
        log.info("a session is taken", session=id, clean=clean, aim=wanted.value)
        self._own(Session(parts, record, epoch, place, Taken(clean, wanted, reason)), epoch)

    async def _place_of(self, record: SessionRecord) -> Place | None:
        config = self._parts.config.executors
        try:
            name, settings = config.executor(record.executor)
            _, agent = config.agent(record.agent)
            path = await asyncio.to_thread(executors.place, settings.root, record.workspace, record.session)
        except TielineError:
            return None
        return Place(self._executors[name], settings.routes, path, agent)

    async def ended(self, process: str) -> None:
        """A process is gone: its sessions are nobody's."""
        self._look.set()

    def _owner_wrote(self, received: Received) -> None:
        """Any owner wrote its key: where it has released it, somebody may take it at once."""
        try:
            released = OwnerRecord.decode(received.data).released
        except BadMessage:
            return
        if released and not self._stopping and len(self._released) < _HEARD:
            self._released.add(received.subject.rpartition(".")[2])
            self._heard.set()

    async def _follow(self) -> None:
        """Take what was released a moment ago."""
        owners = self._parts.owners
        while True:
            await self._heard.wait()
            self._heard.clear()
            released, self._released = self._released, set()
            for id in released - self._sessions.keys():
                try:
                    found = await owners.get(id)
                    if found is not None:
                        for entry in await self._parts.sessions.entries(subjects.session_keys_of(id)):
                            await self._consider(entry, {id: found})
                except TielineError as exc:
                    log.info("a released session could not be looked at", session=id, error=exc.message)

    async def _sweep(self) -> None:
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

    async def _heed_lease(self) -> None:
        """Once the lease has certainly expired, drop everything; when there is one again, take what nobody took."""
        lease, lost = self._parts.lease, False
        while True:
            await asyncio.sleep(_WATCH)
            if lease.must_close():
                lost = True
                for session in list(self._sessions.values()):
                    session.cut()
                for life in list(self._lives.values()):
                    life.cancel()
            elif lost and lease.may_act():
                lost = False
                self._look.set()


def _now_ms() -> int:
    return int(time.time() * 1000)
