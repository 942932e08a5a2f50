"""Names that complete on a command line: of live sessions and remotes, and of contexts. In doubt, quickly none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import typer

from tieline_ops.cli import contexts as known

if TYPE_CHECKING:
    from tieline_protocol.bus import Bus

_PATIENCE = 1.0  # s; nobody waits longer for a Tab

Found = list[tuple[str, str]]


def contexts(incomplete: str) -> Found:
    """Names of contexts, and where they lead."""
    with contextlib.suppress(Exception):
        found = known.load()[1].items()
        return [
            (name, context.nats_url or context.data) for name, context in found if name.startswith(incomplete)
        ]
    return []


def sessions(ctx: typer.Context, incomplete: str) -> Found:
    """Sessions that are not closed, with their titles."""

    async def find(bus: Bus) -> Found:
        from tieline_ops.cli import gather

        return [
            (record.session, record.title or record.workspace)
            for record in await gather.sessions(bus)
            if record.state != "closed" and record.session.startswith(incomplete)
        ]

    return _live(ctx, find)


def remotes(ctx: typer.Context, incomplete: str) -> Found:
    """Remotes that are connected, with how many functions they have."""

    async def find(bus: Bus) -> Found:
        from tieline_ops.cli import gather

        return [
            (record.remotename, f"{len(record.functions)} functions")
            for record in await gather.remotes(bus)
            if record.remotename.startswith(incomplete)
        ]

    return _live(ctx, find)


def functions(ctx: typer.Context, incomplete: str) -> Found:
    """Functions of the remote that was named before."""
    remote = ctx.params.get("remote", "")

    async def find(bus: Bus) -> Found:
        from tieline_ops.cli import gather

        return [
            (function.name, function.description.partition("\n")[0])
            for record in await gather.remotes(bus)
            if record.remotename == remote
            for function in record.functions
            if function.name.startswith(incomplete)
        ]

    return _live(ctx, find)


def _live(ctx: typer.Context, find: Callable[[Any], Awaitable[Found]]) -> Found:
    async def ask() -> Found:
        from tieline_ops.cli import reach

        top = ctx.find_root().params
        wanted = known.Wanted(
            context=top.get("context") or "",
            nats_url=top.get("nats_url") or "",
            data=top.get("data") or known.Wanted().data,
        )
        place = known.resolve(wanted, ctx.params.get("context") or "")
        async with asyncio.timeout(_PATIENCE), reach.bus(place, _PATIENCE) as bus:
            return await find(bus)

    with contextlib.suppress(Exception):  # a Tab must not print an error into the line that is being typed
        return asyncio.run(ask())
    return []
