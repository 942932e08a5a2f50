"""Pure: what a user sees of a session's record."""

from __future__ import annotations

from typing import Any

from tieline_protocol.messages import SessionRecord

PAGE = 50
MOST = 200


def shown(record: SessionRecord) -> dict[str, Any]:
    """One session, as in `session.list`."""
    view: dict[str, Any] = {
        "session_id": record.session,
        "state": record.state,
        "title": record.title,
        "executor": record.executor,
        "agent": record.agent,
        "workspace": record.workspace,
        "remotes": list(record.remotes),
        "created": record.created,
        "updated": record.updated,
    }
    if record.reason is not None:
        view["reason"] = record.reason
    if record.acp_session is not None:
        view["acp_session_id"] = record.acp_session
    return view


def detailed(
    record: SessionRecord, connections: dict[str, str], turn: dict[str, Any] | None
) -> dict[str, Any]:
    """One session, as in `session.get`. `turn` is the latest turn's event."""
    states = {"agent": "down", "workspace": "down", **connections}
    plain = None if turn is None else {name: value for name, value in turn.items() if name != "type"}
    return {**shown(record), "connections": states, "turn": plain}


def page(records: list[SessionRecord], after: str | None, limit: int | None) -> dict[str, Any]:
    """Newest first, from the one behind `after` on."""
    ordered = sorted(records, key=lambda record: (record.created, record.session), reverse=True)
    if after is not None:
        place = next((n for n, record in enumerate(ordered) if record.session == after), len(ordered) - 1)
        ordered = ordered[place + 1 :]
    size = min(max(limit or PAGE, 1), MOST)
    view: dict[str, Any] = {"sessions": [shown(record) for record in ordered[:size]]}
    if len(ordered) > size:
        view["next"] = ordered[size - 1].session
    return view
