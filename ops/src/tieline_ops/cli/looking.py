"""The work of the commands in `look`: read, make rows, write them."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import time
from typing import TYPE_CHECKING, Any

from tieline_protocol import batch, jetstream
from tieline_protocol import subjects as names
from tieline_protocol.errors import BadMessage, BadSubject
from tieline_protocol.messages import SessionRecord
from tieline_protocol.received import Received

from tieline_ops.cli import catalogue, describe, gather, look, output, reach, shapes
from tieline_ops.cli.codes import Exit, Problem
from tieline_ops.cli.contexts import Place
from tieline_ops.cli.output import Format

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


async def session_rows(bus: Bus, user: str = "", all: bool = True) -> list[dict[str, Any]]:
    """A row for each session."""
    records, owners = await asyncio.gather(gather.sessions(bus), gather.owners(bus))
    records = [r for r in records if (not user or r.user == user) and (all or r.state in _OPEN)]
    last: dict[str, dict[str, Any]] = {}
    for start in range(0, len(records), 100):
        wanted = [subject for r in records[start : start + 100] for subject in describe.session_subjects(r)]
        last |= await gather.newest(bus, wanted)
    now = time.time()
    return [describe.session(record, owners.get(record.session), last, now) for record in records]


async def sessions(where: Place, user: str, all: bool, format: Format) -> None:
    async with reach.bus(where) as bus:
        rows = await session_rows(bus, user, all)
    output.rows(format, look.SESSIONS, rows, "no open sessions" if not all else "no sessions")


async def session(where: Place, wanted: str, format: Format) -> None:
    async with reach.bus(where) as bus:
        record = await found(bus, wanted)
        owners, last, heads, ends = await asyncio.gather(
            gather.owners(bus),
            gather.newest(bus, [*describe.session_subjects(record), *_values(record)]),
            gather.heads(bus, record.user, record.session),
            _ends(bus, record.user, record.session, ("agent", "workspace")),
        )
    told = describe.session(record, owners.get(record.session), last, time.time())
    told["logs"] = describe.logs(heads, ends)
    for name, field in (("permissions", "open"), ("questions", "open")):
        event = last.get(names.event(record.user, record.session, "agent", name), {})
        told[name] = len(event.get(field) or [])
    processes = last.get(names.event(record.user, record.session, "workspace", "processes"), {})
    told["processes"] = len(processes.get("running") or [])
    if format in (Format.JSON, Format.YAML):
        output.value(format, told)
    else:
        output.lines(shapes.fields(_of_session(told), colour=output.colour()))


def _values(record: SessionRecord) -> list[str]:
    return [
        names.event(record.user, record.session, log, type)
        for log, type in (("agent", "permissions"), ("agent", "questions"), ("workspace", "processes"))
    ]


async def _ends(bus: Bus, user: str, id: str, logs: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """Where each log ends in its stream."""
    told = {}
    for log in logs:
        stored = await jetstream.last_message(bus, names.stream_of(log), names.log_events(user, id, log))
        if stored is not None:
            end = batch.decode(stored.data)
            told[log] = {"epoch": end.epoch, "last": end.last, "seq": stored.seq}
    return told


def _of_session(told: dict[str, Any]) -> list[tuple[str, object]]:
    turn = told["turn"]
    if turn:
        reason = f", {told['turn_reason']}" if told["turn_reason"] else ""
        turn = f"{turn} ({told['turn_generation']}{reason}, {shapes.age(told['turn_seconds'])} ago)"
    return [
        ("session", told["session"]),
        ("user", told["user"]),
        ("title", told["title"]),
        ("state", f"{told['state']}{', ' + told['reason'] if told['reason'] else ''}"),
        ("wanted", told["wanted"]),
        ("age", shapes.age(told["age_seconds"])),
        ("owner", f"{told['owner_state']} {told['owner'] or ''}".strip()),
        ("epoch", str(told["epoch"] or "-")),
        ("agent socket", told["agent_connection"]),
        ("workspace socket", told["workspace_connection"]),
        ("turn", turn),
        ("waiting", f"{told['permissions']} permissions, {told['questions']} questions"),
        ("processes", told["processes"]),
        *((f"{log} log", _log(one)) for log, one in told["logs"].items()),
        ("executor", told["executor"]),
        ("agent", told["agent"]),
        ("workspace", told["workspace"]),
        ("remotes", told["remotes"]),
    ]


def _log(one: dict[str, Any]) -> str:
    lag = (
        "no owner answers"
        if one["lag"] is None
        else "all confirmed"
        if not one["lag"]
        else f"lag {one['lag']:,}"
    )
    return f"{one['last'] or 0:,} events in this epoch, {lag}"


async def threads(where: Place, user: str, format: Format) -> None:
    async with reach.bus(where) as bus:
        rows = await thread_rows(bus, user)
    output.rows(format, look.THREADS, rows, "no threads")


async def thread_rows(bus: Bus, user: str = "") -> list[dict[str, Any]]:
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


async def remotes(where: Place, user: str, format: Format) -> None:
    async with reach.bus(where) as bus:
        records, alive = await asyncio.gather(gather.remotes(bus), gather.leases(bus))
    living = {lease["process"] for lease in alive}
    rows = [
        describe.remote(record, living, time.time()) for record in records if not user or record.user == user
    ]
    output.rows(format, look.REMOTES, rows, "no remotes are connected")


async def services(where: Place, format: Format) -> None:
    async with reach.bus(where) as bus:
        rows = describe.services(await gather.asked(bus, "STATS"))
    shown = look.flat(rows) if format is Format.WIDE else rows
    output.rows(format, look.shown(format), shown, "no service answers")


async def streams(where: Place, format: Format) -> None:
    async with reach.bus(where) as bus:
        rows = await gather.streams(bus)
    output.rows(format, look.STREAMS, rows, "")
    for row in rows:
        if "error" in row and format is Format.TABLE:
            output.note(f"{row['stream']}: {row['error']}")


async def leases(where: Place, format: Format) -> None:
    async with reach.bus(where) as bus:
        rows = await lease_rows(bus)
    output.rows(format, look.LEASES, rows, "no process holds a lease")


async def lease_rows(bus: Bus) -> list[dict[str, Any]]:
    """A row for each process that is alive."""
    alive, owners, registered = await asyncio.gather(
        gather.leases(bus), gather.owners(bus), gather.remotes(bus)
    )
    holders = [owner.holder for owner in owners.values() if not owner.released]
    holders += [record.gateway for record in registered]
    return [{**lease, "owns": holders.count(lease["process"])} for lease in alive]


async def connections(where: Place, user: str, format: Format) -> None:
    async with reach.bus(where) as bus:
        rows, unknown = await connection_rows(bus)
    rows = [row for row in rows if not user or row["user"] == user]
    output.rows(format, look.CONNECTIONS, rows, "no frontends are connected")
    if unknown and format in (Format.TABLE, Format.WIDE):
        output.note(
            f"and {unknown} that have not said yet whose they are, or are beyond what a gateway tells"
        )


async def connection_rows(bus: Bus) -> tuple[list[dict[str, Any]], int]:
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


async def subjects(where: Place, seconds: float, format: Format) -> None:
    async with reach.bus(where) as bus:
        before = await gather.asked(bus, "STATS")
        began = time.monotonic()
        events = await _events(bus, seconds)
        after = await gather.asked(bus, "STATS")
        took = time.monotonic() - began
    rows = catalogue.rows(events, seconds, before, after, took)
    output.rows(format, look.SUBJECTS, rows, "")


async def _events(bus: Bus, seconds: float) -> collections.Counter[str]:
    """How many events each log's subjects carried in that time, by log."""
    counts: collections.Counter[str] = collections.Counter()

    def heard(received: Received) -> None:
        with contextlib.suppress(BadMessage, BadSubject):
            counts[names.parse_event(received.subject).log] += batch.decode(received.data).count

    subscription = await bus.subscribe(names.ALL_EVENTS, heard)
    try:
        await asyncio.sleep(seconds)
    finally:
        await subscription.close()
    return counts
