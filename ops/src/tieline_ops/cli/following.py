"""The work of the commands in `events`: live events, and those that the logs keep.

The only subscription is to subjects of events. Output is written in a thread, so that a pipe that nobody reads, or a
terminal that is stopped, never makes the broker take us for dead; what then goes beyond the bound is told.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import sys
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from tieline_protocol import batch, jetstream, subjects
from tieline_protocol.errors import BadMessage, BadSubject
from tieline_protocol.received import Received

from tieline_ops import timeline
from tieline_ops.cli import describe, gather, inventory, lines, output, patterns, reach, stored, tracing
from tieline_ops.cli.codes import Exit, Problem
from tieline_ops.cli.contexts import Place
from tieline_ops.cli.lines import As, Told
from tieline_ops.cli.output import Format
from tieline_ops.cli.patterns import Filter

if TYPE_CHECKING:
    from tieline_protocol.bus import Bus

_BOUND = 256 * 1024 * 1024  # bytes of live events that may wait to be written
_TOGETHER = 2_000  # lines written at once


def _writer(how: As) -> Callable[[Told], str]:
    terminal = sys.stdout.isatty()
    return lines.writer(how, colour=output.colour(), terminal=terminal, width=output.width())


async def _write(text: str) -> None:
    await asyncio.to_thread(output.write, text)


async def tail(where: Place, wanted: Filter, age: float, count: int, how: As) -> None:
    """Until `count` events were shown; for ever where that is 0."""
    showing = _Showing(wanted, _writer(how), count)
    async with reach.bus(where) as bus:
        if wanted.id:
            showing.wanted = wanted = await _exactly(bus, wanted)
        async with bus.following(wanted.subject, _BOUND) as live:
            await bus.flush()
            if age and await _since(bus, showing, age):
                return
            async for messages in live:
                if messages is None:
                    output.note(
                        "some events were lost: they came faster than they could be written, or the link broke"
                    )
                    continue
                for start in range(0, len(messages), _TOGETHER):
                    text = showing.texts(messages[start : start + _TOGETHER])
                    if text:
                        await _write(text)
                    if showing.done:
                        return


async def _since(bus: Bus, showing: _Showing, age: float) -> bool:
    """What was kept of the last `age` seconds; True once enough was shown."""
    subject = showing.wanted.subject
    for stream in patterns.streams(subject):
        start = await stored.since(bus, stream, subject, age)
        while start is not None:
            page = await jetstream.read(bus, stream, subject, start)
            if not page.messages:
                break
            start = page.messages[-1].seq + 1
            received = [Received(message.subject, message.data) for message in page.messages]
            if text := showing.texts(received):
                await _write(text)
            if showing.done:
                return True
            if not page.more:
                break
    return False


class _Showing:
    """Batches become text; each batch once."""

    def __init__(self, wanted: Filter, write: Callable[[Told], str], count: int) -> None:
        self.wanted = wanted
        self.done = False
        self._write = write
        self._left = count or -1
        self._seen = patterns.Seen()

    def texts(self, messages: list[Received]) -> str:
        shown: list[str] = []
        for received in messages:
            try:
                self._batch(received, shown)
            except (BadMessage, BadSubject) as exc:
                shown.append(lines.flaw(received.subject, exc.message, len(received.data)))
            if self.done:
                break
        return "".join(f"{text}\n" for text in shown)

    def _batch(self, received: Received, shown: list[str]) -> None:
        subject = subjects.parse_event(received.subject)
        if not self.wanted.takes_subject(subject):
            return
        one = batch.decode(received.data)
        if not self._seen.first_time(subject.id, subject.log, one):
            return
        for text in batch.texts(one):
            event = lines.told(subject.user, text)
            if self.wanted.takes(event.event, event.text):
                shown.append(self._write(event))
                self._left -= 1
                if not self._left:
                    self.done = True
                    return


async def _exactly(bus: Bus, wanted: Filter) -> Filter:
    """With the whole id of the session or thread that is meant."""
    user, id = await _found(bus, wanted.id)
    return Filter(wanted.pattern, wanted.user or user, id, wanted.log, wanted.types, wanted.grep)


async def _found(bus: Bus, wanted: str) -> tuple[str, str]:
    """The user and id of a session or thread. Raises Problem."""
    try:
        record = await inventory.found(bus, wanted)
    except Problem as problem:
        if problem.exit is not Exit.NOT_FOUND:
            raise
        found = describe.meant(await gather.threads(bus), wanted, lambda one: (one.thread, one.title, True))
        if len(found) != 1:
            raise Problem(f"there is no session or thread {wanted!r}", Exit.NOT_FOUND, problem.hint) from None
        return found[0].user, found[0].thread
    return record.user, record.session


async def _kept(bus: Bus, wanted: Filter, age: float) -> AsyncIterator[Told]:
    user, id = await _found(bus, wanted.id)
    logs = [wanted.log] if wanted.log else list(subjects.LOGS)
    async for one in stored.merged([stored.log(bus, user, id, log, age) for log in logs]):
        if wanted.takes(one.event, one.text):
            yield one


async def _joined(events: AsyncIterator[Told]) -> AsyncIterator[Told]:
    """Neighbouring pieces of one text as one event, for people."""
    before: Told | None = None
    async for one in events:
        whole = None
        if before is not None and (before.id, before.log) == (one.id, one.log):
            whole = timeline.joined(before.event, one.event)
        if before is not None and whole is not None:
            before = dataclasses.replace(before, event=whole)
            continue
        if before is not None:
            yield before
        before = one
    if before is not None:
        yield before


async def history(where: Place, wanted: Filter, age: float, last: int, how: As) -> None:
    write = _writer(how)
    shown: collections.deque[str] = collections.deque(maxlen=last or None)
    async with reach.bus(where) as bus:
        kept = _kept(bus, wanted, age)
        async for one in _joined(kept) if how in (As.LINE, As.WIDE) else kept:
            shown.append(write(one))
            if not last and len(shown) >= _TOGETHER:
                output.lines(shown)
                shown.clear()
    output.lines(shown)


async def replay(where: Place, wanted: Filter, age: float, speed: float, most: float, how: As) -> None:
    write = _writer(how)
    before: int | None = None
    async with reach.bus(where) as bus:
        async for one in _kept(bus, wanted, age):
            if before is not None and one.time > before:
                await asyncio.sleep(min((one.time - before) / 1000 / speed, most))
            before = one.time or before
            output.write(write(one) + "\n")


async def trace(where: Place, id: str, last: int, format: Format) -> None:
    async with reach.bus(where) as bus:
        try:
            user, found = await _found(bus, id)
            run = ""
        except Problem:
            user, found, run = await _run(bus, id)
        logs = [stored.log(bus, user, found, log) for log in ("agent", "thread")]
        events = [one async for one in stored.merged(logs)]
    spans = tracing.spans(events)
    if run:
        spans = [span for span in spans if span["name"] == run]
    spans = spans[-last:] if last else spans
    if format in (Format.JSON, Format.YAML):
        output.value(format, spans)
        return
    output.lines(tracing.drawn(spans, width=output.width() or 100, colour=output.colour()))
    if not spans:
        output.note("nothing was asked of it yet")


async def _run(bus: Bus, wanted: str) -> tuple[str, str, str]:
    """The thread of a run. Raises Problem."""
    for record in await gather.threads(bus):
        subject = subjects.event(record.user, record.thread, "thread", "run")
        async for message in jetstream.read_all(bus, subjects.STREAM_AGENT, subject):
            for one in batch.events(batch.decode(message.data)):
                if one.event.get("run_id") == wanted:
                    return record.user, record.thread, wanted
    raise Problem(f"there is no session, thread or run {wanted!r}", Exit.NOT_FOUND)
