"""Reading the logs of a session that is taken over. What they mean: recovered.py."""

from __future__ import annotations

import asyncio

from tieline_protocol import batch, jetstream, subjects
from tieline_protocol.batch import Batch
from tieline_protocol.bus import Bus

from tieline_streams import recovered
from tieline_streams.recovered import Recovered

_SHELL = 4_096  # messages of the stream that are looked through for the end of the shell's output; then more
_MORE = 8  # times as many
_ENOUGH = 16 * 1024  # bytes of batches that tell where the output ends


async def read(bus: Bus, user: str, session: str) -> Recovered:
    """After the opening is stored: what a dead owner stores later does not belong. Raises Unavailable."""
    agent, workspace, shell = await asyncio.gather(
        _read(bus, user, session, "agent", recovered.AGENT),
        _read(bus, user, session, "workspace", recovered.WORKSPACE),
        _shell(bus, user, session),
    )
    return recovered.fold(agent, workspace, shell)


async def _read(
    bus: Bus, user: str, session: str, log: str, types: tuple[str, ...]
) -> list[tuple[int, Batch]]:
    async def one(type: str) -> list[tuple[int, Batch]]:
        subject = subjects.event(user, session, log, type)
        found = jetstream.read_all(bus, subjects.stream_of(log), subject)
        return [(stored.seq, batch.decode(stored.data)) async for stored in found]

    return [pair for found in await asyncio.gather(*map(one, types)) for pair in found]


async def _shell(bus: Bus, user: str, session: str) -> list[tuple[int, Batch]]:
    stream, subject = (
        subjects.stream_of("workspace"),
        subjects.event(user, session, "workspace", "shell_output"),
    )
    oldest, last = [
        await look(bus, stream, subject) for look in (jetstream.first_message, jetstream.last_message)
    ]
    if oldest is None or last is None:
        return []
    window = _SHELL
    while True:  # all sessions share the stream: between two lines of one there may be any number of others
        first = max(last.seq - window, oldest.seq)
        found = [stored async for stored in jetstream.read_all(bus, stream, subject, first)]
        if first == oldest.seq or sum(len(stored.data) for stored in found) >= _ENOUGH:
            return [(stored.seq, batch.decode(stored.data)) for stored in found]
        window *= _MORE
