"""Pure: one screen of a system: what `tieline top` shows, of facts learnt twice some seconds apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment (`at`, seconds of any clock)."""

    at: float
    services: Rows
    leases: Rows
    sessions: Rows
    threads: Rows
    remotes: Rows
    connections: Rows
    streams: Rows


def summary(now: Look, before: Look | None = None) -> dict[str, Any]:
    """Numbers of the whole, rates since `before`, and what deserves a look."""
    passed = now.at - before.at if before else 0.0
    streams = [
        {
            "stream": one["stream"],
            "messages": one.get("messages"),
            "bytes": one.get("bytes"),
            "lag": one.get("lag"),
            "per_second": _rate(one, before.streams if before else (), "stream", "last_seq", passed),
        }
        for one in now.streams
        if one.get("kind") == "events"
    ]
    services = [
        {
            **{name: one[name] for name in ("service", "id", "version", "in_flight", "errors", "p50", "p99")},
            "per_second": _rate(one, before.services if before else (), "id", "requests", passed),
        }
        for one in now.services
    ]
    turns = [one for one in now.sessions if one["turn"] not in (None, "ended") and one["state"] == "ready"]
    return {
        "sessions": {
            "open": len(now.sessions),
            "ready": sum(one["state"] == "ready" for one in now.sessions),
            "turns": len(turns),
            "waiting_permission": sum(one["turn"] == "waiting_permission" for one in turns),
            "without_owner": sum(one["owner_state"] != "alive" for one in now.sessions),
            "sockets_down": sum(
                {one["agent_connection"], one["workspace_connection"]} != {"up"}
                for one in now.sessions
                if one["state"] == "ready"
            ),
        },
        "threads": {"all": len(now.threads), "open_runs": sum(bool(one["busy"]) for one in now.threads)},
        "remotes": len(now.remotes),
        "connections": len(now.connections),
        "waiting_bytes": sum(int(one["waiting_bytes"]) for one in now.connections),
        "oldest_lease": max((one["renewed"] or 0.0 for one in now.leases), default=None),
        "services": services,
        "streams": streams,
        "active": [
            {name: one[name] for name in ("session", "user", "turn", "turn_seconds", "owner_state", "title")}
            for one in sorted(turns, key=lambda one: one["turn_seconds"] or 0)
        ],
    }


def _rate(one: Mapping[str, Any], before: Rows, key: str, counter: str, passed: float) -> float | None:
    earlier = next((other for other in before if other[key] == one[key]), None)
    if earlier is None or passed <= 0 or counter not in one or counter not in earlier:
        return None
    return round(max(float(one[counter]) - float(earlier[counter]), 0.0) / passed, 1)
