"""Pure: what waits while the window of a log is full.

Rule 1, agent log: nothing is dropped. Above its bound (8 MiB a session, 256 MiB a process) reading must stop; below
        half of it reading may go on.
Rule 2, workspace log: reading never stops. Neighbouring output of one stream is merged; above the bound the oldest
        output is dropped, then the oldest of anything a peer sent, and a `gap` stands where it was.
Rule 3: what we say ourselves is never dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tieline_protocol import merge
from tieline_protocol.numbering import gap

SESSION_BYTES = 8 * 1024 * 1024
PROCESS_BYTES = 256 * 1024 * 1024
_MERGE_FROM = 256 * 1024  # below this the window is just busy; merging would only cost time
_OVERHEAD = 128  # of an entry itself, so that empty events are not free


@dataclass(slots=True)
class Entry:
    """An event that waits. `mark` belongs to whoever put it in and is given back with it."""

    type: str
    raws: list[bytes]
    size: int
    mark: object = None
    ours: bool = False
    key: tuple[str, ...] | None = None
    events: int = 1

    @property
    def raw(self) -> bytes:
        return merge.merge(self.raws)


@dataclass(slots=True)
class Dropped(Entry):
    """Stands where events were dropped; neighbours count into one."""

    types: set[str] = field(default_factory=set)
    lost: int = 0

    @property
    def raw(self) -> bytes:
        type = next(iter(self.types)) if len(self.types) == 1 else None
        return gap("overflow", type=type, events=self.events, bytes=self.lost)


@dataclass(slots=True)
class Budget:
    """What all agent logs of a process hold together."""

    limit: int = PROCESS_BYTES
    used: int = 0


class Backlog:
    """Events in order. The base of both policies, and enough for our own events."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self.bytes = 0
        self.dropped = 0  # events, ever

    def __bool__(self) -> bool:
        return bool(self._entries)

    def put(self, type: str, raw: bytes, value: dict[str, Any]) -> None:
        """A peer's event."""
        self._append(Entry(type, [raw], len(raw) + _OVERHEAD))

    def say(self, type: str, raw: bytes, mark: object = None) -> None:
        """An event of ours."""
        self._append(Entry(type, [raw], len(raw) + _OVERHEAD, mark, ours=True))

    def peek(self) -> Entry:
        return self._entries[0]

    def pop(self) -> Entry:
        entry = self._entries.popleft()
        self._count(-entry.size)
        return entry

    def clear(self) -> None:
        """Forget everything: nobody will publish it any more."""
        self._entries.clear()
        self._count(-self.bytes)

    def _append(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._count(entry.size)

    def _count(self, size: int) -> None:
        self.bytes += size


class AgentBacklog(Backlog):
    """Rule 1. `reading` is whether the agent socket may be read."""

    def __init__(self, budget: Budget, limit: int = SESSION_BYTES) -> None:
        super().__init__()
        self._budget = budget
        self._limit = limit
        self.reading = True

    def _count(self, size: int) -> None:
        super()._count(size)
        self._budget.used += size
        if not self._entries:
            self.reading = True
        elif self.bytes >= self._limit or self._budget.used >= self._budget.limit:
            self.reading = False
        elif self.bytes <= self._limit // 2:
            self.reading = True


class WorkspaceBacklog(Backlog):
    """Rule 2."""

    def __init__(self, limit: int = SESSION_BYTES) -> None:
        super().__init__()
        self._limit = limit
        self._merge_from = min(_MERGE_FROM, limit // 4)
        self._merged = min(merge.MERGED_BYTES, limit // 8)

    def put(self, type: str, raw: bytes, value: dict[str, Any]) -> None:
        key = merge.key(type, value)
        size = len(raw) + _OVERHEAD
        if key is not None and self.bytes > self._merge_from:
            last = self._entries[-1]
            if last.key == key and last.size + size <= self._merged:
                last.raws.append(raw)
                last.size += size
                last.events += 1
                self._count(size)
                self._bound()
                return
        self._append(Entry(type, [raw], size, key=key))
        self._bound()

    def _bound(self) -> None:
        if self.bytes <= self._limit:
            return
        self._drop(lambda entry: entry.key is not None)
        if self.bytes > self._limit:
            self._drop(lambda entry: not isinstance(entry, Dropped))

    def _drop(self, droppable: Callable[[Entry], bool]) -> None:
        """Down to three quarters of the bound, so that the cost of looking is shared by many events."""
        kept: deque[Entry] = deque()
        goal = self._limit * 3 // 4
        newest = self._entries[-1]
        for entry in self._entries:
            if self.bytes <= goal or entry.ours or entry is newest or not droppable(entry):
                kept.append(entry)
                continue
            self._count(-entry.size)
            self.dropped += entry.events
            hole = kept[-1] if kept else None
            if not isinstance(hole, Dropped):
                hole = Dropped("gap", [], _OVERHEAD, events=0)
                kept.append(hole)
                self._count(hole.size)
            hole.types.add(entry.type)
            hole.events += entry.events
            hole.lost += sum(map(len, entry.raws))
        self._entries = kept
