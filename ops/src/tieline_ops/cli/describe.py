"""Pure: what is told of sessions, threads, remotes and services: rows, made of records and of what logs say last.

Times are Unix seconds; `now` is this machine's. A clock elsewhere that is ahead makes things new, not of the future.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tieline_protocol import subjects
from tieline_protocol.messages import SessionRecord, ThreadRecord
from tieline_protocol.remotes import RemoteRecord

LONG = ("open", "call")  # endpoints that may take a minute: a daemon starts, a remote works

T = TypeVar("T")
Events = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns a session or thread: its process, since which epoch, and whether that process is alive."""

    holder: str
    epoch: int
    released: bool
    alive: bool

    @property
    def state(self) -> str:
        return "released" if self.released else "alive" if self.alive else "gone"


def ago(now: float, milliseconds: float | None) -> float | None:
    """Seconds since a time; 0 where it is still to come."""
    return None if milliseconds is None else round(max(now - milliseconds / 1000, 0.0), 1)


def session(record: SessionRecord, owner: Owner | None, last: Events, now: float) -> dict[str, Any]:
    """One session. `last`: the last events, by subject."""

    def of(log: str, type: str) -> Mapping[str, Any]:
        return last.get(subjects.event(record.user, record.session, log, type), {})

    turn = of("agent", "turn")
    owned = owner is not None and not owner.released
    return {
        "session": record.session,
        "user": record.user,
        "state": record.state,
        "wanted": record.wanted,
        "reason": record.reason,
        "turn": turn.get("state"),
        "turn_generation": turn.get("generation"),
        "turn_reason": turn.get("reason"),
        "turn_seconds": ago(now, turn.get("time")),
        "owner": owner.holder if owner is not None and owned else None,
        "owner_state": owner.state if owner else "nobody",
        "epoch": owner.epoch if owner else None,
        "agent_connection": of("agent", "connection").get("state"),
        "workspace_connection": of("workspace", "connection").get("state"),
        "title": record.title,
        "executor": record.executor,
        "agent": record.agent,
        "workspace": record.workspace,
        "remotes": list(record.remotes),
        "age_seconds": ago(now, record.created),
    }


def session_subjects(record: SessionRecord) -> list[str]:
    """Where the events are that `session` wants."""
    return [
        subjects.event(record.user, record.session, log, type)
        for log, type in (("agent", "turn"), ("agent", "connection"), ("workspace", "connection"))
    ]


def meant(known: Sequence[T], wanted: str, facts: Callable[[T], tuple[str, str, bool]]) -> list[T]:
    """Which ones a person may mean: by id, by title, by the beginning of either; open ones before those that are not.

    `facts`: the id and title of one, and whether it is open.
    """
    best: list[tuple[T, bool]] = []
    rank = 0
    for one in known:
        id, title, open = facts(one)
        fits = _fits(id, title, wanted)
        if fits > rank:
            best, rank = [], fits
        if fits and fits == rank:
            best.append((one, open))
    return [one for one, open in best if open] or [one for one, _ in best]


def _fits(id: str, title: str, wanted: str) -> int:
    """How well; 0 is not at all."""
    ways = (
        title.lower().startswith(wanted.lower()),
        id.startswith(wanted),
        title == wanted,
        id == wanted,
    )
    return max((n for n, fits in enumerate(ways, 1) if fits and wanted), default=0)


def thread(
    record: ThreadRecord, owner: Owner | None, busy: bool, run: Mapping[str, Any], now: float
) -> dict[str, Any]:
    """One chat thread. `run`: the last event of a run."""
    return {
        "thread": record.thread,
        "user": record.user,
        "busy": busy,
        "run": run.get("run_id"),
        "run_state": run.get("state"),
        "run_reason": run.get("reason"),
        "run_seconds": ago(now, run.get("time")),
        "owner": owner.holder if owner and not owner.released else None,
        "owner_state": owner.state if owner else "nobody",
        "epoch": owner.epoch if owner else None,
        "model": record.model,
        "title": record.title,
        "age_seconds": ago(now, record.created),
    }


def remote(record: RemoteRecord, living: Iterable[str], now: float) -> dict[str, Any]:
    """One registration."""
    return {
        "remote": record.remotename,
        "user": record.user,
        "functions": [function.name for function in record.functions],
        "external": record.external.kind if record.external else None,
        "gateway": record.gateway,
        "gateway_state": "alive" if record.gateway in set(living) else "gone",
        "connection": record.connection,
        "age_seconds": ago(now, record.connected_at),
    }


def services(stats: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each replica. `skew`: it does not run what most replicas of its service run.

    `p50` and `p99` are those of its slowest endpoint, but for those whose nature it is to take long.
    """
    usual = {
        name: Counter(str(one.get("version")) for one in stats if one.get("name") == name).most_common(1)[0][
            0
        ]
        for name in {str(one.get("name")) for one in stats}
    }
    rows = []
    for one in sorted(stats, key=lambda each: (str(each.get("name")), str(each.get("id")))):
        name, endpoints, data = str(one.get("name")), _endpoints(one), one.get("data") or {}
        quick = [each for each in endpoints if each["endpoint"] not in LONG]
        rows.append(
            {
                "service": name,
                "id": str(one.get("id")),
                "version": str(one.get("version")),
                "skew": str(one.get("version")) != usual[name],
                "started": one.get("started"),
                "in_flight": sum(each["in_flight"] for each in endpoints) + int(data.get("in_flight") or 0),
                "requests": sum(each["requests"] for each in endpoints) + int(data.get("requests") or 0),
                "errors": sum(each["errors"] for each in endpoints),
                "p50": max([int(data.get("p50") or 0), *(each["p50"] for each in quick)]),
                "p99": max([int(data.get("p99") or 0), *(each["p99"] for each in quick)]),
                "last_error": next((each["last_error"] for each in endpoints if each["last_error"]), None),
                "endpoints": endpoints,
            }
        )
    return rows


def told_by(stats: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    """What the replicas of a service say besides the numbers of their endpoints."""
    found = [one.get("data") for one in stats if one.get("name") == name]
    return [data for data in found if isinstance(data, Mapping)]


def _endpoints(one: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    for endpoint in one.get("endpoints") or []:
        data = endpoint.get("data") or {}
        found.append(
            {
                "endpoint": str(endpoint.get("name")),
                "subject": str(endpoint.get("subject")),
                "requests": int(endpoint.get("num_requests") or 0),
                "errors": int(endpoint.get("num_errors") or 0),
                "in_flight": int(data.get("in_flight") or 0),
                "p50": int(data.get("p50") or 0),
                "p99": int(data.get("p99") or 0),
                "last_error": endpoint.get("last_error") or None,
            }
        )
    return found


def logs(
    heads: Mapping[str, Mapping[str, int]] | None, ends: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, Any]]:
    """How far each log is. `heads`: the owner's word; `ends`: where the stream ends (epoch, last, seq)."""
    told: dict[str, dict[str, Any]] = {}
    for log in ("agent", "workspace", "thread"):
        end, head = ends.get(log, {}), (heads or {}).get(log)
        if not end and not head:
            continue
        told[log] = {
            "epoch": head["epoch"] if head else end.get("epoch"),
            "last": head["last"] if head else end.get("last"),
            "confirmed": head["confirmed"] if head else end.get("last"),
            "lag": head["last"] - head["confirmed"] if head else None,
            "sequence": end.get("seq"),
            "by": "owner" if head else "stream",
        }
    return told
