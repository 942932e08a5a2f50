"""All sessions of this process put together: those it opens, those it takes, and what it does about its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import TracebackType
from typing import Any

from tieline_protocol.bus import Subscription
from tieline_protocol.leases import ProcessLease
from tieline_protocol.messages import Request

from tieline_streams.lives import Lives
from tieline_streams.opening import Opening
from tieline_streams.ownership import Parts
from tieline_streams.places import Places
from tieline_streams.session import Session
from tieline_streams.takeover import Takeover
from tieline_streams.unowned import Unowned

_WATCH = 0.25


class Sessions:
    """Use as `async with`; leaving the block hands every session over."""

    def __init__(self, parts: Parts, lease: ProcessLease) -> None:
        self._lease = lease
        self._budget = parts.budget
        self._group = asyncio.TaskGroup()
        self._unowned = Unowned(parts, lambda id: self._lives.owned(id))
        answers = {
            "session.get": self._unowned.get,
            "session.close": self._unowned.close,
            "session.rename": self._unowned.rename,
        }
        self._lives = Lives(parts, self._group, answers)
        places = Places(parts.config.executors)
        self._opening = Opening(parts, self._lives, places)
        self._takeover = Takeover(parts, self._lives, places)
        self._background: list[asyncio.Task[None]] = []
        self._hearing: Subscription | None = None

    async def __aenter__(self) -> Sessions:
        await self._group.__aenter__()
        self._hearing = await self._takeover.listen()
        for work, name in (
            (self._takeover.sweep(), "sessions without an owner"),
            (self._takeover.follow(), "sessions that were released"),
            (self._heed_lease(), "lease"),
        ):
            self._background.append(self._group.create_task(work, name=name))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._background:
            task.cancel()
        if self._hearing is not None:
            await self._hearing.close()
        await self._lives.hand_over()
        await self._group.__aexit__(kind, exc, trace)

    def stop_opening(self) -> None:
        """The service stops: whoever waits for a session to open is told now, and what was begun is undone."""
        self._lives.stop_opening()

    @property
    def owned(self) -> Collection[Session]:
        return self._lives.sessions.values()

    @property
    def backlog(self) -> float:
        """How much of what may wait for the agents' logs does."""
        return self._budget.used / self._budget.limit

    def __len__(self) -> int:
        return len(self._lives.sessions)

    # Service endpoints; each raises TielineError

    async def open(self, request: Request) -> dict[str, Any]:
        """Make a session and start it; answers when it is ready."""
        return await self._opening.open(request)

    async def list(self, request: Request) -> dict[str, Any]:
        return await self._unowned.list(request)

    async def get(self, request: Request) -> dict[str, Any]:
        return await self._unowned.get(request)

    async def close(self, request: Request) -> dict[str, Any]:
        return await self._unowned.close(request)

    async def rename(self, request: Request) -> dict[str, Any]:
        return await self._unowned.rename(request)

    # What others have left

    async def recover_instances(self) -> None:
        """Take every session that nobody owns and somebody wants: it goes on here. Raises Unavailable."""
        await self._takeover.recover_instances()

    async def ended(self, process: str) -> None:
        """A process is gone: its sessions are nobody's."""
        self._takeover.look()

    async def _heed_lease(self) -> None:
        """Once the lease has certainly expired, drop everything; when there is one again, take what nobody took."""
        lease, lost, left = self._lease, False, False
        while True:
            await asyncio.sleep(_WATCH)
            if lease.must_close():
                lost, left = True, False
                await self._lives.drop()
            elif lost and lease.may_act():
                lost = False
                self._takeover.look()
            elif lease.may_act() and (left or lease.running_out()):
                left = lease.running_out()
                await self._leave_or_stay(left)

    async def _leave_or_stay(self, leave: bool) -> None:
        """A daemon keeps what it has to say once its sockets have ended in order; after that it is dialled again."""
        managers = [session.manager for session in self.owned if session.manager is not None]
        if leave:
            await asyncio.gather(*(manager.leave() for manager in managers))
        else:
            for manager in managers:
                manager.stay()
