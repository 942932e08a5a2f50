"""What a client heard, in the shape in which it is judged (oracle.py)."""

from __future__ import annotations

from collections.abc import Iterable

from tieline import Event
from tieline_protocol.cursor import Cursor

from tests.support.oracle import Seen


def seen(events: Iterable[Event], log: str, session: str = "") -> list[Seen]:
    """The events of one log of a session (of the only one, where none is named)."""
    found = []
    for event in events:
        if event.log == log and session in ("", event.session_id):
            cursor = Cursor.parse(event.cursor)
            found.append(Seen(cursor.epoch, cursor.offset, event.body))
    return found
