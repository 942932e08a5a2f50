"""The JetStream objects of the system, declared in this one place. Making them twice changes nothing.

A flood discards its own past only: the limit is per subject, and a batch's subject ends in its type.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tieline_protocol import jetstream, subjects
from tieline_protocol.bus import Bus

_DAY = 24 * 3600
_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """What is kept. Ages in days, sizes in bytes (-1: no limit of its own)."""

    replicas: int = 1
    agent_days: float = 90
    agent_per_subject: int = 65_536
    agent_bytes: int = -1
    workspace_days: float = 7
    workspace_per_subject: int = 4_096
    workspace_bytes: int = 16 * 1024**3
    storage: str = "file"


def event_streams(limits: StreamLimits) -> list[dict[str, Any]]:
    """The two streams of events."""
    return [
        _stream(
            subjects.STREAM_AGENT,
            limits,
            max_msgs_per_subject=limits.agent_per_subject,
            max_bytes=limits.agent_bytes,
            max_age=int(limits.agent_days * _DAY * _SECOND),
        ),
        _stream(
            subjects.STREAM_WORKSPACE,
            limits,
            max_msgs_per_subject=limits.workspace_per_subject,
            max_bytes=limits.workspace_bytes,
            max_age=int(limits.workspace_days * _DAY * _SECOND),
        ),
    ]


def _stream(name: str, limits: StreamLimits, **rest: Any) -> dict[str, Any]:
    return {
        "name": name,
        "subjects": subjects.STREAM_SUBJECTS[name],
        "retention": "limits",
        "discard": "old",
        "storage": limits.storage,
        "num_replicas": limits.replicas,
        "allow_direct": True,
        "max_msg_size": 8_000_000,
        "duplicate_window": 0,
        **rest,
    }


def buckets(limits: StreamLimits, now_ms: int) -> list[dict[str, Any]]:
    """The key-value buckets. The owners' starts at the present time: epochs rise even over a bucket made anew."""
    return [
        _bucket(subjects.BUCKET_SESSIONS, limits),
        _bucket(subjects.BUCKET_INSTANCES, limits),
        _bucket(subjects.BUCKET_OWNERS, limits, first_seq=now_ms),
        _bucket(subjects.BUCKET_REMOTES, limits),
        _bucket(subjects.BUCKET_THREADS, limits),
        # Keys of processes expire by themselves; what marks an expiry goes soon after.
        _bucket(
            subjects.BUCKET_PROCESSES, limits, allow_msg_ttl=True, subject_delete_marker_ttl=60 * _SECOND
        ),
    ]


def _bucket(name: str, limits: StreamLimits, **rest: Any) -> dict[str, Any]:
    return {
        "name": subjects.bucket_stream(name),
        "subjects": [subjects.bucket_key(name, ">")],
        "retention": "limits",
        "discard": "new",
        "storage": limits.storage,
        "num_replicas": limits.replicas,
        "max_msgs_per_subject": 1,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        **rest,
    }


async def ensure(bus: Bus, limits: StreamLimits) -> None:
    """Make all streams and buckets. Raises StreamRefused with what is incompatible, Unavailable."""
    for config in event_streams(limits):
        await jetstream.ensure_stream(bus, config)
    for config in buckets(limits, int(time.time() * 1000)):
        name = config["name"]
        info = await jetstream.api(bus, subjects.stream_api("INFO", name))
        if "error" not in info:
            config["first_seq"] = info["config"].get("first_seq", 0)
        await jetstream.ensure_stream(bus, config)
