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

from tieline_ops.cli import catalogue, describe, gather, inventory, look, output, reach, shapes
from tieline_ops.cli.contexts import Place
from tieline_ops.cli.output import Format

if TYPE_CHECKING:
    from tieline_protocol.bus import Bus


async def sessions(where: Place, user: str, all: bool, format: Format) -> None:
    async with reach.bus(where) as bus:
        rows = await inventory.sessions(bus, user, all)
    output.rows(format, look.SESSIONS, rows, "no open sessions" if not all else "no sessions")


async def session(where: Place, wanted: str, format: Format) -> None:
    async with reach.bus(where) as bus:
        record = await inventory.found(bus, wanted)
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
        rows = await inventory.threads(bus, user)
    output.rows(format, look.THREADS, rows, "no threads")


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
        rows = await inventory.leases(bus)
    output.rows(format, look.LEASES, rows, "no process holds a lease")


async def connections(where: Place, user: str, format: Format) -> None:
    async with reach.bus(where) as bus:
        rows, unknown = await inventory.connections(bus)
    rows = [row for row in rows if not user or row["user"] == user]
    output.rows(format, look.CONNECTIONS, rows, "no frontends are connected")
    if unknown and format in (Format.TABLE, Format.WIDE):
        output.note(
            f"and {unknown} that have not said yet whose they are, or are beyond what a gateway tells"
        )


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
