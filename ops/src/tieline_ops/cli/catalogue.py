"""Pure: the catalogue of subjects: what each carries, who hears it, how much it carries now.

Rates of events are counted by listening, those of endpoints come from the services' own counts. Commands, calls and
connections are nobody's business but their receivers': nothing tells their rates over NATS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tieline_protocol import subjects

_LOGS = {
    "agent": ("streams", "what coding agents say: turns, words, tools, permissions"),
    "workspace": ("streams", "shell and process output, files, git"),
    "thread": ("agent", "chat threads: messages, runs, tool calls"),
}


def rows(
    events: Mapping[str, int],
    seconds: float,
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    took: float,
) -> list[dict[str, Any]]:
    """One row for each kind of subject. `events`: counted in `seconds`; `before`, `after`: STATS, `took` s apart."""
    told = []
    patterns = [pattern for several in subjects.STREAM_SUBJECTS.values() for pattern in several]
    for pattern in patterns:
        log = pattern.split(".")[4]
        by, what = _LOGS[log]
        told.append(_row(pattern, "events", f"gateways; written by {by}", what, events.get(log, 0) / seconds))
    earlier = _requests(before)
    for (name, subject), count in sorted(_requests(after).items()):
        rate = max(count - earlier.get((name, subject), 0), 0) / max(took, 0.001)
        told.append(_row(subject, "endpoint", f"{name}, one replica", f"requests to {name}", rate))
    told += [
        _row(
            subjects.ALL_COMMANDS,
            "command",
            "the owner",
            "requests to whoever owns a session or thread",
            None,
        ),
        _row(
            subjects.ALL_CONNECTIONS,
            "connection",
            "its gateway",
            "requests to one frontend's connection",
            None,
        ),
        _row(subjects.ALL_CALLS, "call", "its replica of remotes", "one remote call under way", None),
        _row(subjects.ALL_CHANGED, "notice", "gateways", "one of a user's lists changed", None),
        _row(subjects.ALL_SERVICE_VERBS, "services", "every replica", "PING, INFO, STATS", None),
    ]
    return told


def _row(subject: str, kind: str, heard_by: str, what: str, rate: float | None) -> dict[str, Any]:
    rate = None if rate is None else round(rate, 1)
    return {"subject": subject, "kind": kind, "rate": rate, "heard_by": heard_by, "what": what}


def _requests(stats: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """Requests by service and subject, of all replicas together."""
    counts: dict[tuple[str, str], int] = {}
    for one in stats:
        for endpoint in one.get("endpoints") or []:
            key = (str(one.get("name")), str(endpoint.get("subject")))
            counts[key] = counts.get(key, 0) + int(endpoint.get("num_requests") or 0)
    return counts
