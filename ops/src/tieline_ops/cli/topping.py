"""`tieline top`: one screen, looked at again and again, or once. Reads only; listens to nothing."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

from tieline_ops.cli import describe, gather, inventory, output, reach, shapes
from tieline_ops.cli.contexts import Place
from tieline_ops.cli.output import Format
from tieline_ops.cli.shapes import Column
from tieline_ops.cli.summary import Look, summary

if TYPE_CHECKING:
    from tieline_protocol.bus import Bus

_SERVICES = [
    Column("SERVICE", "service"),
    Column("ID", "id"),
    Column("VERSION", "version"),
    Column("REQUESTS", lambda row: shapes.rate(row["per_second"]), right=True),
    Column("IN FLIGHT", "in_flight", right=True),
    Column("ERRORS", "errors", right=True),
    Column("P50", lambda row: shapes.took(row["p50"]), right=True),
    Column("P99", lambda row: shapes.took(row["p99"]), right=True),
]
_STREAMS = [
    Column("STREAM", "stream"),
    Column("BATCHES", lambda row: shapes.rate(row["per_second"]), right=True),
    Column("MESSAGES", "messages", right=True),
    Column("SIZE", lambda row: shapes.size(row["bytes"]), right=True),
    Column("LAG", "lag", right=True),
]
_ACTIVE = [
    Column("TURN OF", "session"),
    Column("USER", "user", most=24),
    Column("STATE", "turn", state=True),
    Column("SINCE", lambda row: shapes.age(row["turn_seconds"]), right=True),
    Column("OWNER", "owner_state", state=True),
    Column("TITLE", "title"),
]
_ROWS = 12  # of turns on one screen


async def top(where: Place, once: bool, seconds: float, format: Format) -> None:
    async with reach.bus(where) as bus:
        before = await _look(bus)
        await asyncio.sleep(min(seconds, 1.0))
        now = await _look(bus)
        told = summary(now, before)
        if format in (Format.JSON, Format.YAML):
            output.value(format, told)
        elif once or not sys.stdout.isatty():
            output.lines(_screen(told, output.width(), colour=output.colour()))
        else:
            await _live(bus, where, told, now, seconds)


async def _live(bus: Bus, where: Place, told: dict[str, Any], before: Look, seconds: float) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    with output.restoring(), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            size = console.size
            head = (
                f"tieline top  {where.found}  {time.strftime('%H:%M:%S')}  every {seconds:g} s, Ctrl-C ends"
            )
            lines = [
                shapes.styled(head[: size.width], "dim"),
                "",
                *_screen(told, size.width, colour=output.colour()),
            ]
            screen = Text.from_ansi("\n".join(lines[: size.height - 1]), no_wrap=True, overflow="ellipsis")
            live.update(screen, refresh=True)
            await asyncio.sleep(seconds)
            now = await _look(bus)
            told, before = summary(now, before), now


async def _look(bus: Bus) -> Look:
    (connections, _), leases, streams = await asyncio.gather(
        inventory.connections(bus), gather.leases(bus), gather.streams(bus)
    )
    stats, sessions, threads, remotes = await asyncio.gather(
        gather.asked(bus, "STATS"),
        inventory.sessions(bus, all=False),
        inventory.threads(bus),
        gather.remotes(bus),
    )
    living = {lease["process"] for lease in leases}
    registered = [describe.remote(record, living, time.time()) for record in remotes]
    return Look(
        time.monotonic(),
        describe.services(stats),
        leases,
        sessions,
        threads,
        registered,
        connections,
        streams,
    )


def _screen(told: dict[str, Any], width: int, *, colour: bool) -> list[str]:
    sessions, threads = told["sessions"], told["threads"]
    renewed = told["oldest_lease"]
    facts: list[tuple[str, object]] = [
        (
            "sessions",
            f"{sessions['open']} open, {sessions['ready']} ready, {sessions['turns']} turns"
            f" ({sessions['waiting_permission']} wait for a permission)",
        ),
        (
            "in trouble",
            f"{sessions['without_owner']} without owner, {sessions['sockets_down']} with a socket down",
        ),
        ("threads", f"{threads['all']}, {threads['open_runs']} with an open run"),
        ("frontends", f"{told['connections']} connected, {shapes.size(told['waiting_bytes'])} wait for them"),
        ("remotes", f"{told['remotes']} connected"),
        ("leases", "nobody holds one" if renewed is None else f"oldest renewal {renewed:.1f} s ago"),
    ]
    out = shapes.fields(facts, colour=colour)
    for columns, rows in (
        (_SERVICES, told["services"]),
        (_STREAMS, told["streams"]),
        (_ACTIVE, told["active"][:_ROWS]),
    ):
        if rows:
            out += ["", *shapes.table(columns, rows, width=width, colour=colour)]
    return out
