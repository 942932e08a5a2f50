"""Pure: what the `turn` events of a log say, for whoever takes its session over: which turns have no end, and which
prompt was given which generation.

Rule 1: of two ends of one generation the first counts; nothing that follows it opens the turn again.
Rule 2: a prompt that was not sent, or was refused, before it ran may be tried again; any other one was given its
        generation for good.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from tieline_streams.turn import Event

REMEMBERED = 4_096


class Messages:
    """Which generation each `client_message_id` was given; the newest are remembered."""

    def __init__(self) -> None:
        self._given: OrderedDict[str, int] = OrderedDict()

    def generation(self, id: str | None) -> int | None:
        return self._given.get(id) if id is not None else None

    def put(self, id: str | None, generation: int) -> None:
        if id is not None:
            self._given[id] = generation
            if len(self._given) > REMEMBERED:
                self._given.popitem(last=False)

    def forget(self, id: str | None) -> None:
        """It may be sent again."""
        if id is not None:
            self._given.pop(id, None)


@dataclass(frozen=True, slots=True)
class TurnLog:
    """`open`: the last event of each turn that has no end; `last`: the highest generation ever given; `messages`: the
    generation of each `client_message_id`, oldest first."""

    open: dict[int, Event] = field(default_factory=dict)
    last: int = 0
    messages: dict[str, int] = field(default_factory=dict)
    latest: Event | None = None


def fold(events: list[Event]) -> TurnLog:
    """`events` in the order of the log."""
    found: dict[int, Event] = {}
    messages: dict[str, int] = {}
    last, ended, ran = 0, set[int](), set[int]()
    latest: Event | None = None
    for event in events:
        generation, state, message = (
            event.get("generation"),
            event.get("state"),
            event.get("client_message_id"),
        )
        if not isinstance(generation, int) or generation in ended:
            continue
        last, latest = max(last, generation), event
        if state not in ("accepted", "ended"):
            ran.add(generation)
        if isinstance(message, str):
            messages.pop(message, None)
            if event.get("reason") != "error" or generation in ran:
                messages[message] = generation
        if state == "ended":
            ended.add(generation)
            found.pop(generation, None)
        else:
            found[generation] = event
    return TurnLog(dict(sorted(found.items())), last, messages, latest)
