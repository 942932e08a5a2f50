"""Golden output: what `-o json` gives, with what differs from run to run replaced by its kind.

`TIELINE_GOLDEN=write pytest tests/cli` writes the files anew; the difference is then to be looked at.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_DIRECTORY = Path(__file__).parent / "golden"

# What a run decides: ids, times, counts, sizes, and what was slow.
_VARIES = {
    *(
        "session",
        "thread",
        "run",
        "id",
        "owner",
        "process",
        "gateway",
        "connection",
        "epoch",
        "sequence",
        "revision",
    ),
    *(
        "turn_seconds",
        "run_seconds",
        "age_seconds",
        "seconds",
        "renewed",
        "oldest",
        "newest",
        "started",
        "time",
    ),
    *(
        "requests",
        "messages",
        "bytes",
        "subjects",
        "first_seq",
        "last_seq",
        "p50",
        "p99",
        "in_flight",
        "per_second",
    ),
    *(
        "start",
        "took_ms",
        "start_ms",
        "rate",
        "last",
        "confirmed",
        "lag",
        "cursor",
        "errors",
        "last_error",
        "text",
    ),
    *("oldest_lease", "connections", "waiting_bytes", "version", "found", "owns", "performance", "threads"),
    *("sessions", "active", "at", "turn_generation", "leader"),
}
# What may be there or not, depending on what other tests did before.
_MAY_BE = {"last_error", "oldest", "newest", "per_second"}


def shape(value: Any) -> Any:
    """The same, with `<int>`, `<str>` … for what varies."""
    if isinstance(value, list):
        return [shape(item) for item in value]
    if isinstance(value, dict):
        return {name: _kind(name, item) if name in _VARIES else shape(item) for name, item in value.items()}
    return value


def _kind(name: str, value: Any) -> Any:
    if name in _MAY_BE:
        return "<may be>"
    if isinstance(value, dict):
        return {inner: _kind(inner, item) for inner, item in value.items()}
    if isinstance(value, list):
        return "<list>"
    if value is None or isinstance(value, bool):
        return value
    return "<number>" if isinstance(value, int | float) else "<text>"


def check(name: str, value: Any) -> None:
    """Compare with what is kept."""
    path = _DIRECTORY / f"{name}.json"
    text = json.dumps(shape(value), indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("TIELINE_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert json.loads(text) == json.loads(path.read_text()), f"{path.name} differs: {text}"
