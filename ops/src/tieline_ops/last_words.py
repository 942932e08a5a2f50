"""Pure: what of a crashed process's log says why, as people read it: errors only, one line for each."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

MOST = 6
_LONGEST = 300
_ERRORS = frozenset({"error", "critical", "exception", "fatal"})
_NATS = re.compile(r"\[\d+\] \S+ \S+ \[(\w{3})\] (.*)")
_PLUMBING = frozenset({"event", "level", "timestamp", "service", "exception", "stack", "logger"})


def readable(lines: Sequence[str], most: int = MOST) -> list[str]:
    """The last errors. Where no line claims to be one, the end of what is no log line: a traceback, a usage text."""
    errors, rest = [], []
    for line in lines:
        if (entry := _entry(line)) is not None:
            if str(entry.get("level")).lower() in _ERRORS:
                errors.append(_said(entry))
        elif found := _NATS.match(line):
            if found[1] in ("ERR", "FTL"):
                errors.append(found[2])
        elif line.strip():
            rest.append(line.rstrip())
    chosen = errors or _without_frames(rest)
    return [_cut(line) for line in _once(chosen)[-most:]]


def _entry(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _said(entry: dict[str, Any]) -> str:
    """`what happened: exception (name=value …)`."""
    cause = _cause(entry.get("exception"))
    rest = " ".join(f"{name}={value}" for name, value in entry.items() if name not in _PLUMBING)
    return f"{entry.get('event', '')}{f': {cause}' if cause else ''}{f' ({rest})' if rest else ''}"


def _cause(exception: object) -> str:
    """The last line of a traceback; of one in parts, its outermost exception."""
    if isinstance(exception, str):
        return exception.strip().rpartition("\n")[2]
    if isinstance(exception, list) and exception and isinstance(exception[0], dict):
        return f"{exception[0].get('exc_type')}: {exception[0].get('exc_value')}"
    return ""


def _without_frames(lines: list[str]) -> list[str]:
    """Of a traceback, the lines that say what was raised."""
    if not any(line.lstrip(" |+").startswith("Traceback (") for line in lines):
        return lines
    return [
        line
        for line in lines
        if not line.startswith((" ", "Traceback (", "During handling", "The above exception"))
    ] or lines


def _once(lines: list[str]) -> list[str]:
    return list(dict.fromkeys(lines))


def _cut(line: str) -> str:
    plain = "".join(char if char.isprintable() else " " for char in line)
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"
