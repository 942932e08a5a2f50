"""Pure: whether a viewer received everything: what the cursors of the events that it got say."""

from __future__ import annotations

from tieline_protocol.cursor import Cursor
from tieline_protocol.errors import BadCursor

_MARK = '"cursor":"'


def cursor(text: str) -> Cursor | None:
    """The cursor in the head of an event's text; None where there is none."""
    _, mark, rest = text.partition(_MARK)
    if not mark:
        return None
    try:
        return Cursor.parse(rest.partition('"')[0])
    except BadCursor:
        return None


def wrong(first: str, last: str, events: int) -> str | None:
    """What is wrong with a run of `events` events from `first` to `last`; None where each came exactly once."""
    begin, end = cursor(first), cursor(last)
    if begin is None or end is None:
        return "events without a cursor"
    if begin.epoch != end.epoch:
        return f"two epochs: {begin} and {end}"
    offsets = end.offset - begin.offset + 1
    return None if offsets == events else f"{events} events for {offsets} offsets"
