"""Who watches what: the logs that this gateway follows, each once, for all viewers; where a viewer begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any

import structlog
from tieline_protocol import batch as batches
from tieline_protocol.bus import Bus
from tieline_protocol.cursor import START, Cursor, Position
from tieline_protocol.errors import BadMessage, Code, Refused
from tieline_protocol.frontend import VALUE_TYPES
from tieline_protocol.joining import Opening

from tieline_gateway import metrics, snapshot
from tieline_gateway.close_codes import CloseCode
from tieline_gateway.config import Limits
from tieline_gateway.heads import Heads, LogKey, Reads, Records
from tieline_gateway.hub import From, Now, Snapshot, asked, beginning
from tieline_gateway.joining import Follow
from tieline_gateway.sockets import Socket
from tieline_gateway.watch import Watch

log = structlog.get_logger()

Start = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]


@dataclass(frozen=True, slots=True)
class Joined:
    """A viewer that may begin; `cursor` and `reset` are what it is told first."""

    follow: Follow
    cursor: Cursor
    reset: bool


class SessionStreamBroadcaster:
    """The followed logs. `start` runs a named task that ends with the gateway."""

    def __init__(self, control: Bus, bulk: Bus, reads: Bus, records: Records, limits: Limits, start: Start):
        self._buses = {"agent": control, "thread": control, "workspace": bulk}
        self._reads = Reads(reads, limits.reads)
        self._heads = Heads(control, self._reads, records)
        self._records = records
        self._limits = limits
        self._start = start
        self._watches: dict[LogKey, Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    @property
    def watches(self) -> Collection[Watch]:
        return self._watches.values()

    async def join(
        self,
        user: str,
        session: str,
        wanted: dict[str, str | None],
        socket: Socket,
        on_close: Callable[[CloseCode], None],
    ) -> dict[str, Joined]:
        """Prepare a viewer for logs; `Follow.begin` starts each. Raises TielineError; then nothing is followed."""
        cursors = {name: asked(name, cursor) for name, cursor in wanted.items()}
        for log_ in dict.fromkeys("thread" if name == "thread" else "agent" for name in cursors):
            if not await self._records.exists(user, session, log_):
                raise Refused(Code.NOT_FOUND, f"no such {'thread' if log_ == 'thread' else 'session'}")
        joined: dict[str, Joined] = {}
        try:
            for name, cursor in cursors.items():
                joined[name] = await self._join(LogKey(user, session, name), cursor, socket, on_close)
        except BaseException:
            for done in joined.values():
                self.leave(done.follow)
            raise
        return joined

    async def _join(
        self, key: LogKey, cursor: Cursor | str, socket: Socket, on_close: Callable[[CloseCode], None]
    ) -> Joined:
        watch = self._enter(key)
        try:
            await watch.ready.wait()
            openings: list[Opening] = []
            if isinstance(cursor, Cursor):
                openings = await self._reads.openings(key)
                if cursor.position > Position(watch.head.epoch, watch.head.last):
                    await watch.ask()
            begin = beginning(cursor, openings, watch.head if watch.head.epoch else None)
            first: list[bytes] = []
            reset = False
            match begin:
                case From(at):
                    pass
                case Now():
                    at = watch.tip.cursor
                case Snapshot(reset) if key.log == "thread":  # a chat has no values: all of it is its state
                    at = Cursor(*START, 0)
                case Snapshot(reset):
                    at, first = await self._snapshot(watch)
            if reset:
                metrics.RESETS.labels(log=key.log).inc()
            return Joined(Follow(watch, socket, cursor, at, first, self._spawn, on_close), at, reset)
        except BaseException:
            self._exit(watch)
            raise

    async def _snapshot(self, watch: Watch) -> tuple[Cursor, list[bytes]]:
        cursor = (await watch.ask()).safe
        if not cursor.at:
            return cursor, []
        key = watch.key
        stored = await self._reads.values(
            key, [key.of_type(type) for type in VALUE_TYPES[key.log]], cursor.at
        )
        values = []
        openings: list[Opening] | None = None
        while stored:
            message = stored.pop()
            try:
                batch = batches.decode(message.data)
            except BadMessage:
                continue
            if batch.epoch != cursor.epoch:
                openings = await self._reads.openings(key) if openings is None else openings
                if snapshot.outlived(batch.epoch, message.seq, openings):
                    stored += await self._reads.values(key, [message.subject], message.seq - 1)
                    continue
            values.append((message.seq, batch))
        return cursor, snapshot.frames(values, cursor)

    def leave(self, follow: Follow) -> None:
        """A viewer does not follow a log any more."""
        if not follow.ended:
            follow.end()
            self._exit(follow.watch)

    def tick(self, now: float) -> None:
        """Once a second."""
        for watch in self._watches.values():
            watch.tick(now)

    def _enter(self, key: LogKey) -> Watch:
        watch = self._watches.get(key)
        if watch is None:
            watch = Watch(key, self._buses[key.log], self._reads, self._heads, self._limits)
            self._watches[key] = watch
            watch.task = self._start(watch.run(), f"follow {key.session} {key.log}")
            metrics.WATCHED.labels(log=key.log).inc()
        watch.users += 1
        metrics.SUBSCRIPTIONS.labels(log=key.log).inc()
        return watch

    def _exit(self, watch: Watch) -> None:
        watch.users -= 1
        metrics.SUBSCRIPTIONS.labels(log=watch.key.log).dec()
        if watch.users == 0:
            del self._watches[watch.key]
            metrics.WATCHED.labels(log=watch.key.log).dec()
            if watch.task is not None:
                watch.task.cancel()

    def _spawn(self, follow: Follow) -> asyncio.Task[None]:
        key = follow.watch.key
        return self._start(follow.catch_up(), f"catch up {key.session} {key.log}")
