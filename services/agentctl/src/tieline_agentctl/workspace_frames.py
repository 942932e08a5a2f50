"""Pure: the frames of the workspace stream, both ways. One flat JSON object each; what cannot be used is `Ignored`."""

from dataclasses import dataclass
from typing import Any

from tieline_agentctl.jsons import dump
from tieline_agentctl.jsontext import BadJson, loads

MOST_CELLS = 65535  # a terminal's size is two unsigned 16-bit numbers


@dataclass(frozen=True, slots=True)
class ShellInput:
    data: str


@dataclass(frozen=True, slots=True)
class ShellResize:
    cols: int
    rows: int


@dataclass(frozen=True, slots=True)
class Ping:
    pass


@dataclass(frozen=True, slots=True)
class Ignored:
    reason: str


Inbound = ShellInput | ShellResize | Ping | Ignored


def parse(text: str | bytes) -> Inbound:
    """What a client wants. A frame that makes no sense has no effect; the next one is read as ever."""
    try:
        frame = loads(text)
    except BadJson as exc:
        return Ignored(f"not JSON: {exc}")
    if not isinstance(frame, dict):
        return Ignored("not an object")
    match frame.get("type"):
        case "shell_input":
            data = frame.get("data")
            return ShellInput(data) if isinstance(data, str) else Ignored("shell_input without text")
        case "shell_resize":
            size = _cells(frame.get("cols")), _cells(frame.get("rows"))
            if all(size):
                return ShellResize(*size)
            return Ignored("shell_resize with a size that no terminal has")
        case "ping":
            return Ping()
        case other:
            return Ignored(f"unknown type: {str(other)[:80]}")


def _cells(value: Any) -> int:
    """The number, or 0 when no terminal can be so wide or high."""
    return value if type(value) is int and 1 <= value <= MOST_CELLS else 0


def frame(type_: str, now_ms: int, **fields: Any) -> str:
    return dump({"type": type_, "timestamp": now_ms, **fields}).decode()


def shell_exit(code: int, now_ms: int) -> str:
    """As the wire does, code 0 is left out."""
    return frame("shell_exit", now_ms, **({"code": code} if code else {}))


def dropped(size: int, now_ms: int) -> str:
    return frame("error", now_ms, error=f"{size} bytes of output were dropped: this reader was too slow")
