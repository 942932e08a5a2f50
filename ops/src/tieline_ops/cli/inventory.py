"""Rows of what there is, made of what was read: for lists, for `top`, for `check`."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from tieline_protocol import subjects as names
from tieline_protocol.messages import SessionRecord

from tieline_ops.cli import describe, gather
from tieline_ops.cli.codes import Exit, Problem

if TYPE_CHECKING:
    from tieline_protocol.bus import Bus

_OPEN = ("opening", "ready", "closing")


async def found(bus: Bus, wanted: str) -> SessionRecord:
    """The session that a person means. Raises Problem."""
    records = await gather.sessions(bus)
    matching = describe.meant(records, wanted, lambda one: (one.session, one.title, one.state in _OPEN))
    if not matching:
        raise Problem(
            f"there is no session {wanted!r}", Exit.NOT_FOUND, "`tieline sessions --all` lists them"
        )
    if len(matching) > 1:
        several = ", ".join(record.session for record in matching[:4])
        raise Problem(f"{wanted!r} may be any of {len(matching)} sessions: {several}", Exit.USAGE)
    return matching[0]


async def sessions(bus: Bus, user: str = "", all: bool = True) -> list[dict[str, Any]]:
    """A row for each session."""
    records, owners = await asyncio.gather(gather.sessions(bus), gather.owners(bus))
    records = [r for r in records if (not user or r.user == user) and (all or r.state in _OPEN)]
    last: dict[str, dict[str, Any]] = {}
    for start in range(0, len(records), 100):
        wanted = [subject for r in records[start : start + 100] for subject in describe.session_subjects(r)]
        last |= await gather.newest(bus, wanted)
    now = time.time()
    return [describe.session(record, owners.get(record.session), last, now) for record in records]


async def threads(bus: Bus, user: str = "") -> list[dict[str, Any]]:
    """A row for each chat thread."""
    records, owners, busy = await asyncio.gather(
        gather.threads(bus), gather.owners(bus), gather.busy_threads(bus)
    )
    records = [record for record in records if not user or record.user == user]
    runs: dict[str, dict[str, Any]] = {}
    for start in range(0, len(records), 300):
        wanted = [names.event(r.user, r.thread, "thread", "run") for r in records[start : start + 300]]
        runs |= await gather.newest(bus, wanted)
    now = time.time()
    return [
        describe.thread(
            record,
            owners.get(record.thread),
            record.thread in busy,
            runs.get(names.event(record.user, record.thread, "thread", "run"), {}),
            now,
        )
        for record in records
    ]


async def leases(bus: Bus) -> list[dict[str, Any]]:
    """A row for each process that is alive."""
    alive, owners, registered = await asyncio.gather(
        gather.leases(bus), gather.owners(bus), gather.remotes(bus)
    )
    holders = [owner.holder for owner in owners.values() if not owner.released]
    holders += [record.gateway for record in registered]
    return [{**lease, "owns": holders.count(lease["process"])} for lease in alive]


async def connections(bus: Bus) -> tuple[list[dict[str, Any]], int]:
    """A row for each frontend's connection, and how many are not told of."""
    stats, registered = await asyncio.gather(gather.asked(bus, "STATS"), gather.remotes(bus))
    names: dict[str, list[str]] = {}
    for record in registered:
        names.setdefault(record.connection, []).append(record.remotename)
    rows: list[dict[str, Any]] = []
    total = 0
    for gateway in describe.told_by(stats, "gateway"):
        total += int(gateway.get("total") or 0)
        rows += [
            {**one, "remotes": names.get(str(one.get("connection")), []), "gateway": gateway.get("process")}
            for one in gateway.get("connections") or []
        ]
    return sorted(rows, key=lambda row: (str(row["user"]), row["seconds"])), total - len(rows)
