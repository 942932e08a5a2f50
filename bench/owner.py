"""Worker: an owner of the benchmark's own. It publishes batches made beforehand, exactly as an owner of a session does.

Stored in JetStream like any other: every batch has a reply subject of its own and is confirmed by its own
acknowledgement; no more than a window is unconfirmed.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from tieline_protocol import batch, bus, jetstream, messages, reader, streams, subjects
from tieline_protocol.cursor import Cursor
from tieline_protocol.numbering import BATCH_BYTES

from bench import events
from bench.credit import Credit, credit
from bench.workers import PATIENCE, BenchError, Handler, serve_async

_BATCH = BATCH_BYTES
_STREAM = subjects.STREAM_AGENT
_VIEWER_WINDOW = 512 * 1024  # what one viewer may be behind: below every bound that a viewer has


class Owner:
    """Sessions of one user, one after the other."""

    def __init__(self, connection: bus.Bus, allowance: Credit) -> None:
        self._bus = connection
        self._credit = allowance
        self._user = self._session = ""
        self._heads: dict[str, messages.LogHead] = {}
        self._server: bus.Server | None = None
        self._batches: list[tuple[int, bytes]] = []
        self._acks = 0
        self._confirmed = asyncio.Event()

    async def own(self, user: str, session: str) -> dict[str, Any]:
        """A session that is ready, with an opening in both logs."""
        await self.release()
        self._user, self._session = user, session
        owners = jetstream.Bucket(self._bus, subjects.BUCKET_OWNERS)
        epoch = await owners.put(session, messages.OwnerRecord(holder="bench").encode())
        now = int(time.time() * 1000)
        record = messages.SessionRecord(
            session=session,
            user=user,
            executor="bench",
            agent="bench",
            workspace=".",
            created=now,
            updated=now,
            state="ready",
        )
        sessions = jetstream.Bucket(self._bus, subjects.BUCKET_SESSIONS)
        await sessions.put(subjects.session_key(user, session), record.encode())
        for log in ("agent", "workspace"):
            opening = batch.Framer(session, log).gap(
                Cursor(epoch, 1, 0), now, {"type": "epoch", "previous": 0, "last": 0, "clean": True}
            )
            message = batch.encode(batch.Batch(epoch, 1, 1, 0, opening))
            at = await jetstream.publish(self._bus, subjects.event(user, session, log, "epoch"), message)
            self._heads[log] = messages.LogHead(epoch=epoch, last=1, confirmed=1, at=at)
        self._server = await self._bus.serve(subjects.commands(user, session), self._command)
        await self._bus.flush()
        return {}

    async def prepare(self, count: int, size: int) -> dict[str, Any]:
        """Make the batches of `count` equal events; says what every viewer must receive, to the byte."""
        head = self._heads["agent"]
        framer = batch.Framer(self._session, "agent")
        event = events.message_chunk(size)
        self._batches = []
        held: list[bytes] = []
        bytes_held, first, total, tail = 0, head.last + 1, 0, b""
        now = int(time.time() * 1000)
        for offset in range(first, first + count):
            tail = framer.frame(Cursor(head.epoch, offset, head.at), now, event)
            if bytes_held + len(tail) > _BATCH:
                total += self._close_batch(head, first, held)
                first, held, bytes_held = offset, [], 0
            held.append(tail)
            bytes_held += len(tail)
        total += self._close_batch(head, first, held)
        return {"total": total, "tail": base64.b64encode(tail).decode(), "credit_port": self._credit.port}

    def _close_batch(self, head: messages.LogHead, first: int, held: list[bytes]) -> int:
        frames = b"".join(held)
        message = batch.encode(batch.Batch(head.epoch, first, len(held), head.at, frames))
        self._batches.append((len(held), message))
        return len(frames)

    async def publish(self, watched: bool = True, stored: bool = True) -> dict[str, Any]:
        """Publish what was prepared, as fast as it is confirmed (if it is `stored`) and received (if `watched`)."""
        subject = subjects.event(self._user, self._session, "agent", "message_chunk")
        inbox = self._bus.inbox()
        self._credit.begin()
        self._acks = 0
        sequences: list[int] = []

        def acknowledged(received: bus.Received) -> None:
            sequence = jetstream.ack_sequence(received.data)
            if sequence is not None:
                sequences.append(sequence)
                self._confirmed.set()

        listening = await self._bus.subscribe(f"{inbox}.*", acknowledged)
        await self._bus.flush()
        in_flight = max(reader.WINDOW // _BATCH, 1)
        began = time.monotonic()
        sent = 0
        async with asyncio.timeout(PATIENCE):
            for number, (_, message) in enumerate(self._batches):
                while stored and number - len(sequences) >= in_flight:
                    self._confirmed.clear()
                    await self._confirmed.wait()
                if watched:
                    await self._credit.until(sent)
                await self._bus.publish(subject, message, f"{inbox}.{number}" if stored else "")
                sent += len(message) - batch.PREFIX_SIZE
            while stored and len(sequences) < len(self._batches):
                self._confirmed.clear()
                await self._confirmed.wait()
        await listening.close()
        if sequences != sorted(sequences):
            raise BenchError("acknowledgements out of order")
        head = self._heads["agent"]
        if stored:
            last = head.last + sum(count for count, _ in self._batches)
            self._heads["agent"] = messages.LogHead(
                epoch=head.epoch, last=last, confirmed=last, at=sequences[-1]
            )
        return {"began": began}

    async def keep(self, stored: bool) -> dict[str, Any]:
        """Whether the broker keeps what is published from now on; what it has it keeps anyway."""
        config = next(one for one in streams.event_streams(streams.StreamLimits()) if one["name"] == _STREAM)
        await jetstream.ensure_stream(self._bus, config if stored else {**config, "subjects": ["bench.kept"]})
        return {}

    async def _command(self, received: bus.Received) -> bytes | None:
        if subjects.command_action(received.subject) != subjects.HEAD:
            return messages.answer({})
        return messages.answer({log: head.model_dump() for log, head in self._heads.items()})

    async def release(self) -> dict[str, Any]:
        if self._server is not None:
            await self._server.close()
            self._server = None
        return {}


@contextlib.asynccontextmanager
async def main() -> AsyncIterator[Mapping[str, Handler]]:
    settings = bus.BusSettings(os.environ["TIELINE_NATS_URL"], "bench owner")
    async with bus.connect(settings) as connection, credit(_VIEWER_WINDOW) as allowance:
        await streams.ensure(connection, streams.StreamLimits())
        owner = Owner(connection, allowance)
        yield {
            "own": owner.own,
            "prepare": owner.prepare,
            "publish": owner.publish,
            "keep": owner.keep,
            "release": owner.release,
        }


if __name__ == "__main__":
    serve_async(main)
