"""All threads of this process: which it owns, how it takes one, and what is asked about threads that nobody owns.

A thread is taken when somebody wants something of it and nobody owns it, and when its owner died with work undone:
then every surviving replica looks through the threads that have something to do, and the first takes each.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import weakref
from collections.abc import Collection
from types import TracebackType
from typing import Any

import structlog
from tieline_protocol import logs, ownership, subjects
from tieline_protocol.errors import Code, FateUnknown, NoResponders, Refused, TielineError, Unavailable
from tieline_protocol.jetstream import Bucket, WrongRevision
from tieline_protocol.messages import OwnerRecord, Request, ThreadRecord, outcome

from tieline_agent import owned, payloads, views
from tieline_agent.owned import OwnedThread
from tieline_agent.parts import Lost, Parts
from tieline_agent.payloads import read
from tieline_agent.records import now_ms

log = structlog.get_logger()

_FIRST_WAIT, _MOST_WAIT = 0.02, 0.5
_WATCH = 0.25


class Threads:
    """Use as `async with`; leaving the block gives every thread up, for another replica to go on."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._processes = Bucket(parts.bus, subjects.BUCKET_PROCESSES)
        self._group = asyncio.TaskGroup()
        self._owned: dict[str, OwnedThread] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._look = asyncio.Event()
        self._background: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Threads:
        await self._group.__aenter__()
        for work, name in ((self._sweep(), "threads without an owner"), (self._heed_lease(), "lease")):
            self._background.append(self._group.create_task(work, name=name))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for task in self._background:
            task.cancel()
        for thread in self._owned.values():
            thread.leave()
        log.info("giving threads up", threads=len(self._owned))
        drain = self._parts.config.drain
        await asyncio.gather(*(thread.hand_over(drain) for thread in list(self._owned.values())))
        await self._group.__aexit__(kind, exc, trace)

    @property
    def owned(self) -> Collection[OwnedThread]:
        return self._owned.values()

    def __len__(self) -> int:
        return len(self._owned)

    async def ended(self, process: str) -> None:
        """A process is gone: its threads may have something to do."""
        self._look.set()

    # Endpoints

    async def create(self, request: Request) -> dict[str, Any]:
        """A new thread. Its id is a hash of the request's, so that a repeated request makes no second one."""
        wanted = read(payloads.Create, request.payload)
        seed = f"{len(request.user)}:{request.user}{request.id}".encode("utf-8", "surrogatepass")
        id = "t" + hashlib.sha256(seed).hexdigest()[:24]
        now = now_ms()
        record = ThreadRecord(
            thread=id,
            user=request.user,
            title=wanted.title,
            model=wanted.model,
            instructions=wanted.instructions,
            created=now,
            updated=now,
        )
        await self._parts.records.create(record)
        return {"thread_id": id}

    async def list(self, request: Request) -> dict[str, Any]:
        wanted = read(payloads.List, request.payload)
        return views.page(await self._parts.records.of_user(request.user), wanted.after, wanted.limit)

    async def get(self, request: Request) -> dict[str, Any]:
        wanted = read(payloads.Which, request.payload)
        return views.detailed(await self._parts.records.get(request.user, wanted.thread_id))

    async def rename(self, request: Request) -> dict[str, Any]:
        wanted = read(payloads.Rename, request.payload)
        await self._parts.records.change(request.user, wanted.thread_id, title=wanted.title)
        return {}

    async def delete(self, request: Request) -> dict[str, Any]:
        return await self._at_owner(owned.DELETE, request)

    async def message(self, request: Request) -> dict[str, Any]:
        return await self._at_owner(owned.MESSAGE, request)

    async def cancel(self, request: Request) -> dict[str, Any]:
        return await self._at_owner(owned.CANCEL, request)

    async def _at_owner(self, action: str, request: Request) -> dict[str, Any]:
        """Have a command done by the thread's owner: by us, where nobody owns it. Raises TielineError."""
        id = read(payloads.Which, request.payload).thread_id
        wait = _FIRST_WAIT
        while True:
            thread = await self._take(request.user, id)
            if thread is not None:
                reply = await self._asked(thread, action, request)
            else:
                reply = await self._passed_on(action, request, id)
            if reply is not None:
                return outcome(reply)
            await asyncio.sleep(wait)
            wait = min(wait * 2, _MOST_WAIT)

    async def _asked(self, thread: OwnedThread, action: str, request: Request) -> bytes | None:
        """What one of ours replies; None where it ends before it could."""
        asking = asyncio.create_task(thread.asked(action, request), name=f"{action} {thread.id}")
        gone = asyncio.create_task(thread.finished.wait(), name=f"end of {thread.id}")
        try:
            await asyncio.wait((asking, gone), return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() and not asking.cancelled() else None
        finally:
            for task in (asking, gone):
                task.cancel()
            await asyncio.wait((asking, gone))

    async def _passed_on(self, action: str, request: Request, id: str) -> bytes | None:
        try:
            subject = subjects.command(request.user, id, action)
            received = await self._parts.bus.request(subject, request.encode(), request.budget_ms / 1000)
        except (NoResponders, FateUnknown):  # each of these commands may be repeated
            return None
        return received.data

    # Owning

    async def _take(self, user: str, id: str) -> OwnedThread | None:
        """The thread as ours; None where another process owns it. Raises Refused (not_found), Unavailable."""
        if not subjects.is_id(id):
            raise Refused(Code.NOT_FOUND, "there is no such thread")
        async with self._locks.setdefault(id, asyncio.Lock()):
            thread = self._owned.get(id)
            if thread is not None:
                if thread.user != user:
                    raise Refused(Code.NOT_FOUND, "there is no such thread")
                return thread
            parts = self._parts
            record = await parts.records.get(user, id)
            if self._stopping.is_set() or not parts.lease.may_act():
                raise Unavailable("this replica takes no threads now")
            entry = await parts.owners.get(id)
            owner = OwnerRecord.decode(entry.value) if entry is not None else None
            if owner is not None and not owner.released and await self._lives_elsewhere(owner.holder):
                return None
            revision = entry.revision if entry is not None else 0
            try:
                epoch = await ownership.take(parts.owners, id, parts.lease.id, revision)
            except WrongRevision:
                return None
            if self._stopping.is_set():
                await ownership.release(parts.owners, id, parts.lease.id, epoch)
                raise Unavailable("this replica is stopping")
            thread = OwnedThread(parts, record, epoch, clean=owner is None or owner.released)
            self._owned[id] = thread
            self._lives[id] = self._group.create_task(self._life(thread, epoch), name=f"own {id}")
            return thread

    async def _lives_elsewhere(self, holder: str) -> bool:
        if not holder or holder == self._parts.lease.id:
            return False  # given up, or ours from before our lease had expired
        return await self._processes.get(subjects.process_key(holder)) is not None

    async def _life(self, thread: OwnedThread, epoch: int) -> None:
        logs.about(user=thread.user, thread=thread.id)
        try:
            await thread.run()
        except Lost:
            log.warning("a thread is not ours any more", thread=thread.id)
        except Exception as exc:  # one thread's trouble, even a mistake of ours, is not the others'
            log.exception("a thread broke", thread=thread.id, error=repr(exc))
            await self._abandon(thread.id, epoch)
        finally:
            del self._owned[thread.id], self._lives[thread.id]

    async def _abandon(self, id: str, epoch: int) -> None:
        """Whoever is asked next may take it, and says that it was not given up in order."""
        try:
            await self._parts.owners.put(id, OwnerRecord(holder="").encode(), expected=epoch)
        except TielineError as exc:
            log.warning("a thread could not be given up", thread=id, error=exc.message)

    async def _sweep(self) -> None:
        """Take what has something to do and no owner: at the start, when a process ended, and now and then."""
        while True:
            try:
                found = await self._parts.records.all_open()
                random.shuffle(found)  # other replicas look too
                for wanted in found:
                    if wanted.thread not in self._owned:
                        await self._wake(wanted.user, wanted.thread)
            except TielineError as exc:
                log.info("open threads could not be looked through", error=exc.message)
            try:
                async with asyncio.timeout(self._parts.config.sweep):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()

    async def _wake(self, user: str, id: str) -> None:
        try:
            if await self._take(user, id) is not None:
                log.info("a thread is taken up again", thread=id)
        except Refused as exc:
            if exc.code is Code.NOT_FOUND:  # deleted
                await self._parts.records.done(id)

    async def _heed_lease(self) -> None:
        """Once the lease has certainly expired, drop everything; when there is one again, look what is left."""
        lease, lost = self._parts.lease, False
        while True:
            await asyncio.sleep(_WATCH)
            if lease.must_close():
                lost = True
                for life in list(self._lives.values()):
                    life.cancel()
            elif lost and lease.may_act():
                lost = False
                self._look.set()
