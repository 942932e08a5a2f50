"""Pure: what a user sees of a thread's record."""

from __future__ import annotations

from typing import Any

from tieline_protocol.messages import ThreadRecord

PAGE = 50
MOST = 200


def shown(record: ThreadRecord) -> dict[str, Any]:
    """One thread, as in `thread.list`."""
    return {
        "thread_id": record.thread,
        "title": record.title,
        "model": record.model,
        "created": record.created,
        "updated": record.updated,
    }


def detailed(record: ThreadRecord) -> dict[str, Any]:
    """One thread, as in `thread.get`."""
    return {**shown(record), "instructions": record.instructions}


def page(records: list[ThreadRecord], after: str | None, limit: int | None) -> dict[str, Any]:
    """Newest first, from the one behind `after` on."""
    ordered = sorted(records, key=lambda record: (record.created, record.thread), reverse=True)
    if after is not None:
        place = next((n for n, record in enumerate(ordered) if record.thread == after), len(ordered) - 1)
        ordered = ordered[place + 1 :]
    size = min(max(limit or PAGE, 1), MOST)
    view: dict[str, Any] = {"threads": [shown(record) for record in ordered[:size]]}
    if len(ordered) > size:
        view["next"] = ordered[size - 1].thread
    return view
