"""The JetStream objects of the system, declared in this one place. Making them twice changes nothing.

A flood discards its own past only: the limit is per subject, and a batch's subject ends in its type.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog

from tieline_protocol import jetstream, subjects
from tieline_protocol.backoff import delays
from tieline_protocol.bus import Bus
from tieline_protocol.errors import Unavailable

log = structlog.get_logger()

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


def event_streams(limits: StreamLimits, first_seq: int = 1) -> list[dict[str, Any]]:
    """The two streams of events, whose first message will have the sequence `first_seq`."""
    return [
        _stream(
            subjects.STREAM_AGENT,
            limits,
            first_seq=first_seq,
            max_msgs_per_subject=limits.agent_per_subject,
            max_bytes=limits.agent_bytes,
            max_age=int(limits.agent_days * _DAY * _SECOND),
        ),
        _stream(
            subjects.STREAM_WORKSPACE,
            limits,
            first_seq=first_seq,
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
        # Keys of threads that have something to do come and go; so do the marks of their going.
        _bucket(subjects.BUCKET_THREADS, limits, allow_msg_ttl=True),
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


async def ensure(bus: Bus, limits: StreamLimits, *, update: bool = True) -> None:
    """Make all streams and buckets, waiting for a JetStream that is not there (yet). Raises StreamRefused.

    `update`: bring those that exist up to `limits`. One service has the limits among its knobs and does so; the
    others only make what is missing, so that nobody undoes what an operator has chosen.
    """
    await _patiently(lambda: _ensure(bus, limits, update))


async def wait(bus: Bus) -> None:
    """Until all streams and buckets are there: somebody else makes them (migrate.py)."""
    await _patiently(lambda: _look(bus))


async def _patiently(work: Callable[[], Awaitable[None]]) -> None:
    for pause in delays(random.random, 0.05, 2):
        try:
            await work()
        except Unavailable as exc:
            log.warning("JetStream is not there, trying again", error=exc.message)
            await asyncio.sleep(pause)
        else:
            return


async def _ensure(bus: Bus, limits: StreamLimits, update: bool) -> None:
    for config in _all(limits):
        if update or await _found(bus, config["name"]) is None:
            await jetstream.ensure_stream(bus, config, update=update)


async def _look(bus: Bus) -> None:
    for config in _all(StreamLimits()):
        if await _found(bus, config["name"]) is None:
            raise Unavailable(f"{config['name']} is not there yet")


def _all(limits: StreamLimits) -> list[dict[str, Any]]:
    # Sequences rise even over a stream made anew: in microseconds, since a busy system stores thousands in a second.
    now = time.time_ns() // 1000
    return [*event_streams(limits, now), *buckets(limits, now // 1000)]


async def _found(bus: Bus, stream: str) -> dict[str, Any] | None:
    """A stream's configuration; None where there is no such stream. Raises Unavailable."""
    info = await jetstream.api(bus, subjects.stream_api("INFO", stream))
    if error := info.get("error"):
        if error.get("code") != 404:
            raise Unavailable(f"cannot look at {stream}: {error.get('description', error)}")
        return None
    config: dict[str, Any] = info["config"]
    return config
