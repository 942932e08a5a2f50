"""docs/events.md as data: which fields the events of each log have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs/events.md"
_SECTIONS = {
    "In every log": ("agent", "workspace", "thread"),
    "The agent log": ("agent",),
    "The workspace log": ("workspace",),
    "The log of a thread": ("thread",),
}
# What stands on every event of a peer's.
_ALWAYS = {
    "agent": frozenset(
        {"supports_image", "supports_audio", "supports_embedded_context", "supports_prompt_queueing"}
    ),
    "workspace": frozenset({"timestamp"}),
    "thread": frozenset(),
}


@dataclass(frozen=True, slots=True)
class Fields:
    """Those that an event must have, and all that it may have; `inner` are those of an object within it."""

    must: frozenset[str]
    may: frozenset[str]
    inner: frozenset[str] = frozenset()


def described() -> dict[tuple[str, str], Fields]:
    """By log and type."""
    found: dict[tuple[str, str], Fields] = {}
    text = PAGE.read_text()
    for title, logs in _SECTIONS.items():
        section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        for table in re.findall(r"\| event \| fields \| when \|\n\|---.*\n((?:\|.*\n)+)", section):
            for row in table.splitlines():
                kind, fields, what = (cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:4])
                named = re.findall(r"`(\w+\??)`", fields)
                whole = frozenset(name.rstrip("?") for name in named)
                must = frozenset(name for name in named if not name.endswith("?"))
                if what == "see below":
                    what = section.partition(f"`{kind.strip('`')}` is the whole state: ")[2].partition("\n")[
                        0
                    ]
                inner = re.match(r"`\{(.*?)\}`", what)
                names = re.findall(r"(\w+)\??(?=[,:}]|$)", inner[1] if inner else "")
                for log in logs:
                    found[log, kind.strip("`")] = Fields(must, whole, frozenset(names))
    return found


def unknown(log: str, event: dict[str, Any]) -> list[str]:
    """What of an event the page lacks, or promises and is not there."""
    kind = str(event.get("type"))
    fields = described().get((log, kind))
    if fields is None:
        return [f"{log} log: {kind} is not described: {sorted(event)}"]
    wrong = [
        f"{kind}: {name} is not described"
        for name in event
        if name not in fields.may | _ALWAYS[log] | {"type"}
    ]
    wrong += [f"{kind}: {name} is not there" for name in fields.must if name not in event]
    value = event.get(kind)
    if isinstance(value, dict):
        wrong += [f"{kind}.{name} is not described" for name in value if name not in fields.inner]
    return wrong
