"""Events that a log keeps, as a reader of the system sees them: each once, in order, with what is missing told."""

from __future__ import annotations

import datetime
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import orjson
from tieline_protocol import batch, jetstream, joining, subjects
from tieline_protocol.cursor import Cursor
from tieline_protocol.errors import BadMessage, Unavailable
from tieline_protocol.reader import Gap, Out, Reader

from tieline_ops.cli import lines
from tieline_ops.cli.lines import Told

if TYPE_CHECKING:
    from tieline_protocol.bus import Bus


async def since(bus: Bus, stream: str, subject: str, seconds: float) -> int | None:
    """The sequence of the first message of a subject that was stored in the last `seconds`; None: there is none."""
    when = datetime.datetime.fromtimestamp(max(time.time() - seconds, 0), datetime.UTC).isoformat()
    body = {"start_time": when, "next_by_subj": subject}
    received = await bus.request(subjects.direct_get(stream), orjson.dumps(body), jetstream.TIMEOUT)
    headers = received.headers or {}
    match headers.get("Status", ""):
        case "":
            return int(headers["Nats-Sequence"])
        case "404":
            return None
        case code:
            raise Unavailable(f"reading {stream}: {code} {headers.get('Description', '')}")


async def log(bus: Bus, user: str, id: str, name: str, seconds: float = 0) -> AsyncIterator[Told]:
    """All events of one log, or those of the last `seconds`. Raises Unavailable."""
    stream, subject = subjects.stream_of(name), subjects.log_events(user, id, name)
    start = await since(bus, stream, subject, seconds) if seconds else 1
    if start is None:
        return
    reader: Reader | None = None
    openings: list[joining.Opening] = []
    last: tuple[int, batch.Batch] | None = None
    async for message in jetstream.read_all(bus, stream, subject, start):
        try:
            one = batch.decode(message.data)
        except BadMessage:
            continue
        if reader is None:  # what lies before the beginning is not missing, it was not asked for
            reader = Reader(Cursor(one.epoch, one.first - 1, 0))
        if one.first == 1:
            openings.append(joining.Opening(message.seq, one.epoch))
        last = (message.seq, one)
        for event in _told(user, id, name, reader.stored(message.seq, one)):
            yield event
    if reader is not None and last is not None:
        reader.head(
            joining.head_of_log(*last, openings, closed=True)
        )  # what was not stored until now is not waited for
        for event in _told(user, id, name, reader.read_done(last[0])):
            yield event


def _told(user: str, id: str, log: str, outs: Sequence[Out]) -> list[Told]:
    told = []
    token = subjects.user_token(user)
    for out in outs:
        if isinstance(out, Gap):
            event = {"type": "gap", "reason": out.reason, "events": out.last - out.first + 1}
            told.append(Told(token, id, log, str(out.cursor), 0, event, orjson.dumps(event).decode()))
        elif hasattr(out, "batch"):
            told += [lines.told(token, text) for text in batch.texts(out.batch)]
    return told


async def merged(logs: Sequence[AsyncIterator[Told]]) -> AsyncIterator[Told]:
    """Events of several logs by their time. Within a log its own order stays, whatever the clocks said (B94)."""
    heads: list[tuple[Told, AsyncIterator[Told]]] = []
    for source in logs:
        async for first in source:
            heads.append((first, source))
            break
    while heads:
        n = min(range(len(heads)), key=lambda index: heads[index][0].time)
        one, source = heads[n]
        yield one
        following = await anext(source, None)
        if following is None:
            del heads[n]
        else:
            heads[n] = (following, source)
