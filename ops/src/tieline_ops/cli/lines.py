"""Pure: events as lines: for people, or as JSON for programs. What a peer wrote is shown, never obeyed."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tieline_protocol import jsontext
from tieline_protocol.errors import BadMessage

from tieline_ops import timeline
from tieline_ops.cli import safe, shapes

_SHADES = {
    **dict.fromkeys(("gap", "foreign", "agent_error", "error"), "bad"),
    **dict.fromkeys(("turn", "run", "session", "epoch", "connection", "permissions"), "warn"),
    **dict.fromkeys(("message_chunk", "message", "delta"), "good"),
    **dict.fromkeys(("shell_output", "process_output", "reasoning"), "dim"),
}
_ID = 9  # characters of an id: enough to tell the sessions of one screen
_NARROW = 72  # columns below which what goes before an event is told shortly


class As(StrEnum):
    """How events are written: lines for people (`wide`: with user and cursor), the frame as it came, JSON."""

    LINE = "line"
    WIDE = "wide"
    RAW = "raw"
    JSON = "json"
    NDJSON = "ndjson"


@dataclass(frozen=True, slots=True)
class Told:
    """One event with where it stands. `text` is the frame's text, as it came; `user` is a token."""

    user: str
    id: str
    log: str
    cursor: str
    time: int
    event: dict[str, Any]
    text: str

    @property
    def type(self) -> str:
        return str(self.event.get("type", "?"))


def told(user: str, text: bytes) -> Told:
    """The event in the text of a frame. Raises BadMessage."""
    payload = _mapping(_mapping(jsontext.loads(text)).get("payload"))
    event = payload.get("event")
    if not isinstance(event, dict):
        raise BadMessage("a frame without an event")
    id = payload.get("session_id") or payload.get("thread_id") or ""
    when = payload.get("time")
    return Told(
        user,
        str(id),
        str(payload.get("log") or "thread"),
        str(payload.get("cursor", "")),
        when if isinstance(when, int) else 0,
        event,
        text.decode("utf-8", "replace"),
    )


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def writer(how: As, *, colour: bool = False, terminal: bool = False, width: int = 0) -> Callable[[Told], str]:
    """What makes a line (or more) of an event."""
    match how:
        case As.RAW:
            return (lambda one: safe.line(one.text)) if terminal else (lambda one: one.text)
        case As.NDJSON:
            return lambda one: safe.jsoned(plain(one))
        case As.JSON:
            return lambda one: safe.jsoned(plain(one), 2)
        case _:
            return lambda one: line(one, wide=how is As.WIDE, colour=colour, width=width)


def plain(one: Told) -> dict[str, Any]:
    """An event for programs. The field names stay as they are."""
    name = "thread" if one.log == "thread" else "session"
    return {
        "time": one.time,
        "user": one.user,
        name: one.id,
        "log": one.log,
        "cursor": one.cursor,
        "event": one.event,
    }


def line(one: Told, *, wide: bool = False, colour: bool = False, width: int = 0) -> str:
    """An event for people. `width`: cut it there; 0: nowhere."""
    if wide:
        head = f"{clock(one.time)} {one.id:<{_ID}} {one.log:<9} {one.user:<12} {one.cursor:<28} "
    elif 0 < width < _NARROW:
        head = f"{clock(one.time)[:8]} {safe.cut(one.id, 5):<5} {safe.cut(one.log, 5):<5} "
    else:
        head = f"{clock(one.time)} {safe.cut(one.id, _ID):<{_ID}} {one.log:<9} "
    head = safe.line(head)
    text = safe.line(timeline.line(one.event))
    if width and len(head) + shapes.cells_wide(text) > width:
        head = safe.cut(head, width - 1)
        text = shapes.fit(text, max(width - len(head), 1))
    if not colour:
        return head + text
    return shapes.styled(head, "dim") + shapes.styled(text, _SHADES.get(one.type, ""))


def clock(milliseconds: int) -> str:
    """The time of day here; one that cannot be shown is left out."""
    try:
        return datetime.datetime.fromtimestamp(milliseconds / 1000).strftime("%H:%M:%S.%f")[:-3]
    except (OverflowError, OSError, ValueError):
        return "--:--:--.---"


def flaw(subject: str, why: str, size: int) -> str:
    """A line about a message that is no batch of events."""
    return f"! {safe.line(subject)}: {safe.line(why)} ({size:,} bytes)"
