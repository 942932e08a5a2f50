"""What it means to own a session: what all sessions of a process share, how one is found, where it works, how it ends.

Who may take one: taking.py. What its new owner does first: recovery.py.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal, Protocol, TypeVar

from tieline_protocol import subjects
from tieline_protocol.agentctl_http import Spelling
from tieline_protocol.backpressure import Budget
from tieline_protocol.bus import Bus
from tieline_protocol.errors import Unavailable
from tieline_protocol.jetstream import Bucket
from tieline_protocol.messages import InstanceRecord, SessionRecord
from tieline_protocol.ownership import announce, insist, release

from tieline_streams.config import AgentSettings, Config
from tieline_streams.executors import Executor
from tieline_streams.taking import Aim

T = TypeVar("T")


class Right(Protocol):
    """Who this process is, and whether it is certain that it may act; to be asked at each use."""

    id: str

    def may_act(self) -> bool: ...


class Tenure:
    """The right to one session: that of the process, until it was lost once. A lease that comes back gives the process
    its right again, and not its sessions."""

    def __init__(self, process: Right) -> None:
        self.id = process.id
        self._process = process
        self.lost = False

    def may_act(self) -> bool:
        return not self.lost and self._process.may_act()


@dataclass(frozen=True, slots=True)
class Parts:
    """What all sessions of a process share. Each kind of log has a connection of its own."""

    config: Config
    bus: Bus
    agent_bus: Bus
    workspace_bus: Bus
    sessions: Bucket
    instances: Bucket
    owners: Bucket
    processes: Bucket
    budget: Budget
    lease: Right


@dataclass(frozen=True, slots=True)
class Taken:
    """How an owner takes a session that another one had: whether that one released it, and what is to be done.

    `settle`: it was this process itself, which may still publish what it had not confirmed; returns whether it did.
    """

    clean: bool
    aim: Aim
    reason: str | None = None
    settle: Callable[[float], Awaitable[bool]] | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """How far the logs of a session go, and whether all that its last owner read is in them."""

    agent: tuple[int, int] = (0, 0)
    workspace: tuple[int, int] = (0, 0)
    clean: bool = True


@dataclass(frozen=True, slots=True)
class Ending:
    """`released`: the process stops and the session does not."""

    state: Literal["closed", "failed", "released"]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where and with what a session works."""

    executor: Executor
    routes: Spelling
    path: PurePath  # as the daemon sees it
    agent: AgentSettings


class Ledger:
    """The records of one session; written by its owner only. A broker that is away is waited for."""

    def __init__(self, parts: Parts, record: SessionRecord, epoch: int) -> None:
        self._parts = parts
        self._may_act = parts.lease.may_act
        self._epoch = epoch
        self.record = record

    async def write(self, **changes: Any) -> None:
        """Change the session's record and tell the user's connections."""
        record = self.record
        added = record.state == "opening" and record.updated == record.created
        changes["updated"] = max(int(time.time() * 1000), record.updated + 1)
        self.record = record = record.model_copy(update=changes)
        key = subjects.session_key(record.user, record.session)
        # What is written is the newest there is, also when the broker took its time.
        await self._insist(lambda: self._parts.sessions.put(key, self.record.encode()))
        await announce(
            self._parts.bus, record.user, "session", record.session, "added" if added else "updated"
        )

    async def place(self, instance: InstanceRecord) -> None:
        await self._insist(lambda: self._parts.instances.put(self.record.session, instance.encode()))

    async def forget_place(self) -> None:
        await self._insist(lambda: self._parts.instances.delete(self.record.session))

    async def _insist(self, work: Callable[[], Awaitable[T]]) -> T:
        """Until it works; while this process is not certain to own the session nothing is written."""

        async def allowed() -> T:
            if not self._may_act():
                raise Unavailable("this process is not certain to own the session")
            return await work()

        return await insist(allowed)

    async def release(self) -> None:
        """Give the session up: everything is confirmed."""
        await release(self._parts.owners, self.record.session, self._parts.lease.id, self._epoch)
