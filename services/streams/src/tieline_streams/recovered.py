"""Pure: what the logs of a session say about it, for whoever takes it over.

Rule 1: stream order decides between owners: what a dead owner stored after a newer opening does not belong to the log.
Rule 2: within an epoch the offset decides: batches may be stored twice, or after later ones.
Rule 3: of a set only its last event counts; of the turns, all of them do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tieline_protocol import batch, jsontext
from tieline_protocol.batch import Batch

Event = dict[str, Any]
Stored = Iterable[tuple[int, Batch]]

AGENT = ("epoch", "turn", "permissions", "questions")
WORKSPACE = ("epoch", "processes", "operation")


@dataclass(frozen=True, slots=True)
class Recovered:
    """What is open."""

    turns: list[Event] = field(default_factory=list)  # all there ever were
    permissions: list[Event] = field(default_factory=list)
    questions: list[Event] = field(default_factory=list)
    processes: list[Event] = field(default_factory=list)
    operations: list[Event] = field(default_factory=list)
    shell: list[bytes] = field(default_factory=list)  # the last events of its output


def events(stored: Stored) -> list[Event]:
    """The events that belong to a log, in its order; `stored` are its batches with their stream sequences."""
    epochs: dict[int, dict[int, Event]] = {}
    newest = 0
    for _, whole in sorted(stored, key=lambda pair: pair[0]):
        if whole.epoch < newest:
            continue
        newest = whole.epoch
        known = epochs.setdefault(whole.epoch, {})
        for record in batch.events(whole):
            known.setdefault(record.cursor.offset, record.event)
    return [known[offset] for _, known in sorted(epochs.items()) for offset in sorted(known)]


def fold(agent: Stored, workspace: Stored, shell: Stored = ()) -> Recovered:
    """`agent` and `workspace` hold the batches of the types above; `shell` those of the last shell output."""
    said, seen = events(agent), events(workspace)
    return Recovered(
        turns=[event for event in said if event.get("type") == "turn"],
        permissions=_set(said, "permissions", "open"),
        questions=_set(said, "questions", "open"),
        processes=_set(seen, "processes", "running"),
        operations=_running(seen),
        shell=[jsontext.dumps(event) for event in events(shell) if event.get("type") == "shell_output"],
    )


def _set(said: list[Event], type: str, name: str) -> list[Event]:
    items = next((event.get(name) for event in reversed(said) if event.get("type") == type), None)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _running(seen: list[Event]) -> list[Event]:
    found: dict[object, Event] = {}
    for event in seen:
        if event.get("type") != "operation":
            continue
        if event.get("state") == "running":
            found[event.get("operation_id")] = event
        else:
            found.pop(event.get("operation_id"), None)
    return list(found.values())
