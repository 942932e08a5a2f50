"""Pure: what viewers may have seen of a log, whatever died, was cut or came late meanwhile.

Rule 1: positions of an epoch follow each other without holes; an epoch begins with its opening, which a viewer hears
        once it has all that the opening says was there. Only a `gap` may stand for offsets that are missing.
Rule 2: what a viewer concatenates, cut where something tells of a loss (a `gap`, an opening that is not clean), is
        pieces of what the peer said: each whole, none twice, in order.
Rule 3: each turn has one end, and says nothing after it.
Rule 4: a live viewer and a late one stand at the same place, and whatever the late one reads the live one got once,
        the same, or was told of.

Rule 5: a newcomer, who is told only how things are, knows of each of them what the last event in the log says.

Each function returns what is wrong, in words; nothing is wrong where it returns nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class Seen(NamedTuple):
    """One event as a viewer got it."""

    epoch: int
    offset: int
    body: dict[str, Any]

    @property
    def type(self) -> str:
        return str(self.body.get("type", ""))

    @property
    def place(self) -> tuple[int, int]:
        return (self.epoch, self.offset)


def in_order(seen: Sequence[Seen]) -> list[str]:
    """Rule 1, for a viewer that began at the start of the log."""
    wrong = []
    epoch = offset = 0
    for one in seen:
        if one.epoch < epoch or (one.epoch == epoch and one.offset <= offset):
            wrong.append(f"{one.place} {one.type} came after {(epoch, offset)}")
            continue
        if one.epoch > epoch:
            if one.type == "epoch" and epoch:
                last = one.body.get("last", 0) if one.body.get("previous") == epoch else 0
                if offset < last:
                    wrong.append(f"{(epoch, offset)} is followed by an opening that found {last}")
            offset = 0
        if one.offset != offset + 1 and one.type != "gap":
            wrong.append(f"{one.place} {one.type} follows {(one.epoch, offset)}, and no gap tells of it")
        elif one.offset == 1 and one.type != "epoch":
            wrong.append(f"{one.place} is no opening but {one.type}")
        epoch, offset = one.place
    return wrong


def tells_of_loss(body: dict[str, Any], type: str) -> bool:
    """Whether an event says that events of a type may be missing here."""
    if body.get("type") == "gap":
        return body.get("event_type", type) == type
    return body.get("type") == "epoch" and body.get("clean") is False


def pieces(seen: Iterable[Seen], type: str, field: str) -> list[str]:
    """What a viewer concatenates of one type, cut where a loss is told."""
    found = [""]
    for one in seen:
        if tells_of_loss(one.body, type):
            found.append("")
        elif one.type == type:
            found[-1] += str(one.body.get(field, ""))
    return found


def of_one_text(parts: Sequence[str], said: str) -> list[str]:
    """Rule 2. Lines of `said` must differ, or a repetition could be taken for the original."""
    at = 0
    for number, part in enumerate(parts):
        first, last = number == 0, number == len(parts) - 1
        found = len(said) - len(part) if last else said.find(part, at)
        if found < at or not said.startswith(part, found) or (first and found):
            return [
                f"piece {number} of {len(parts)}, {part[:60]!r}…{part[-60:]!r}, does not follow {said[:at][-60:]!r}"
            ]
        at = found + len(part)
    return []


def one_end_each(seen: Iterable[Seen]) -> list[str]:
    """Rule 3. A turn that has none yet is wrong too. A message has one turn, beside those that never ran."""
    wrong = []
    ended: set[int] = set()
    running: set[int] = set()
    turns: dict[int, str | None] = {}
    for one in seen:
        if one.type != "turn":
            continue
        generation, state = one.body["generation"], one.body["state"]
        turns[generation] = one.body.get("client_message_id")
        if generation in ended:
            wrong.append(f"turn {generation} is {state} after its end")
        if state == "ended":
            ended.add(generation)
        if state not in ("accepted", "ended") or one.body.get("reason", "error") != "error":
            running.add(generation)
    wrong += [f"turn {generation} has no end" for generation in sorted(turns.keys() - ended)]
    ran = Counter(turns[generation] for generation in running)
    return wrong + [
        f"message {name} ran in {count} turns" for name, count in ran.items() if name and count > 1
    ]


def agree(live: Sequence[Seen], late: Sequence[Seen]) -> list[str]:
    """Rule 4. Both in order, both of the whole log."""
    wrong = []
    if (here := live[-1].place if live else None) != (there := late[-1].place if late else None):
        wrong.append(f"the live viewer stands at {here}, the late one at {there}")
    got = {one.place: one.body for one in live}
    told = _told(live)
    for one in late:
        here_too = got.get(one.place)
        if here_too is not None and here_too.get("type") != "gap":
            if here_too != one.body:
                wrong.append(f"{one.place} was {here_too} live and is {one.body} in the log")
        elif not any(first <= one.place <= last for first, last in told):
            wrong.append(f"{one.place} {one.type} is in the log and never reached the live viewer")
    return wrong


def same_state(all: Sequence[Seen], newcomer: Sequence[Seen], types: Sequence[str]) -> list[str]:
    """Rule 5, for the types whose last event is the whole state."""
    said, known = ({one.type: one.body for one in viewer} for viewer in (all, newcomer))
    return [
        f"a newcomer takes {known.get(type)} for the last {type}, which is {said.get(type)}"
        for type in types
        if known.get(type) != said.get(type)
    ]


def _told(seen: Sequence[Seen]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The offsets for which the gaps of a viewer stand."""
    spans = []
    before = (0, 0)
    for one in seen:
        if one.type == "gap":
            first = before[1] + 1 if before[0] == one.epoch else 1
            spans.append(((one.epoch, first), one.place))
        before = one.place
    return spans
