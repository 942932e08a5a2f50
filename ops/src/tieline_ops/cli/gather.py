"""What the system says of itself, read over NATS: records, owners, leases, streams, services. Nothing is changed.

Only reads of JetStream, the services convention and the command `head`, which asks an owner how far its logs are:
nothing here subscribes to anything but its own answers.
"""

from __future__ import annotations

import asyncio
import datetime
import time
import uuid
from typing import TYPE_CHECKING, Any

import orjson
from tieline_protocol import batch, jetstream, messages, subjects
from tieline_protocol.errors import TielineError, Unavailable
from tieline_protocol.remotes import RemoteRecord

from tieline_ops.cli.describe import Owner

if TYPE_CHECKING:
    from tieline_protocol.bus import Bus

BUCKETS = {
    "sessions": subjects.BUCKET_SESSIONS,
    "owners": subjects.BUCKET_OWNERS,
    "processes": subjects.BUCKET_PROCESSES,
    "remotes": subjects.BUCKET_REMOTES,
    "threads": subjects.BUCKET_THREADS,
}
SERVICES = ("gateway", "streams", "remotes", "agent")


async def entries(bus: Bus, bucket: str, keys: str = ">") -> list[jetstream.Stored]:
    """All keys of a bucket that have a value, with the headers of their writes. Raises Unavailable."""
    stream = subjects.bucket_stream(bucket)
    found: dict[str, jetstream.Stored] = {}
    async for stored in jetstream.read_all(bus, stream, subjects.bucket_key(bucket, keys)):
        headers = stored.headers or {}
        found.pop(stored.subject, None)
        if not {"KV-Operation", "Nats-Marker-Reason"} & headers.keys():
            found[stored.subject] = stored
    return list(found.values())


def key(stored: jetstream.Stored, bucket: str) -> str:
    """The key of an entry."""
    return stored.subject.removeprefix(subjects.bucket_key(bucket, ""))


def written(stored: jetstream.Stored) -> float | None:
    """When the broker stored a message, in Unix seconds of the broker's clock."""
    text = (stored.headers or {}).get("Nats-Time-Stamp", "")
    return _seconds(text)


def _seconds(text: str) -> float | None:
    """RFC 3339 as NATS writes it, to the nanosecond."""
    if len(text) < 20:
        return None
    whole, dot, rest = text.partition(".")
    zone = "" if not dot else rest.lstrip("0123456789")
    digits = rest[: len(rest) - len(zone)][:6]
    try:
        moment = datetime.datetime.fromisoformat(
            (f"{whole}.{digits}{zone}" if dot else whole).replace("Z", "+00:00")
        )
    except ValueError:
        return None
    return moment.timestamp() if moment.year > 1 else None


async def sessions(bus: Bus) -> list[messages.SessionRecord]:
    """All sessions of all users, newest first."""
    found = await entries(bus, subjects.BUCKET_SESSIONS)
    records = [messages.SessionRecord.decode(stored.data) for stored in found]
    return sorted(records, key=lambda record: (record.created, record.session), reverse=True)


async def threads(bus: Bus) -> list[messages.ThreadRecord]:
    """All chat threads of all users, newest first."""
    found = await entries(bus, subjects.BUCKET_THREADS)
    opened = subjects.open_key("*").removesuffix("*")
    records = [
        messages.ThreadRecord.decode(stored.data)
        for stored in found
        if not key(stored, subjects.BUCKET_THREADS).startswith(opened)
    ]
    return sorted(records, key=lambda record: (record.created, record.thread), reverse=True)


async def busy_threads(bus: Bus) -> set[str]:
    """The threads that have something to do."""
    found = await entries(bus, subjects.BUCKET_THREADS, subjects.open_key("*"))
    return {messages.OpenThread.decode(stored.data).thread for stored in found}


async def remotes(bus: Bus) -> list[RemoteRecord]:
    """All registrations of all users."""
    found = await entries(bus, subjects.BUCKET_REMOTES)
    records = [RemoteRecord.decode(stored.data) for stored in found]
    return sorted(records, key=lambda record: (record.user, record.remotename))


async def leases(bus: Bus) -> list[dict[str, Any]]:
    """The processes that hold a lease, by kind; `renewed` is how long ago, in seconds."""
    found = await entries(bus, subjects.BUCKET_PROCESSES, subjects.process_key("*"))
    now = time.time()
    told = [
        {
            "process": subjects.process_of(stored.subject),
            "kind": stored.data.decode(errors="replace"),
            "renewed": None if (when := written(stored)) is None else round(max(now - when, 0.0), 1),
            "revision": stored.seq,
        }
        for stored in found
    ]
    return sorted(told, key=lambda lease: (lease["kind"], lease["process"]))


async def owners(bus: Bus) -> dict[str, Owner]:
    """Who owns each session and thread that was ever owned."""
    owned, alive = await asyncio.gather(entries(bus, subjects.BUCKET_OWNERS), leases(bus))
    living = {lease["process"] for lease in alive}
    found = {}
    for stored in owned:
        record = messages.OwnerRecord.decode(stored.data)
        found[key(stored, subjects.BUCKET_OWNERS)] = Owner(
            record.holder, stored.seq, record.released, record.holder in living
        )
    return found


async def newest(bus: Bus, wanted: list[str]) -> dict[str, dict[str, Any]]:
    """The last event on each subject (patterns allowed), by subject."""
    found: dict[str, dict[str, Any]] = {}
    for stream in (subjects.STREAM_AGENT, subjects.STREAM_WORKSPACE):
        mine = [subject for subject in wanted if subjects.stream_of(subject.split(".")[4]) == stream]
        if mine:
            for stored in (await jetstream.read_last(bus, stream, mine)).messages:
                *_, last = batch.events(batch.decode(stored.data))
                found[stored.subject] = {**last.event, "time": last.time}
    return found


async def heads(bus: Bus, user: str, id: str, timeout: float = 1.0) -> dict[str, dict[str, int]] | None:
    """How far each log is, from its owner; None where none answers."""
    request = messages.Request(id=uuid.uuid4().hex, user=user, budget_ms=int(timeout * 1000), payload={})
    try:
        received = await bus.request(subjects.command(user, id, subjects.HEAD), request.encode(), timeout)
        return messages.outcome(received.data)
    except TielineError:
        return None


async def stream(bus: Bus, name: str) -> dict[str, Any]:
    """A stream's configuration and state. Raises Unavailable."""
    answer = await jetstream.api(bus, subjects.stream_api("INFO", name))
    if error := answer.get("error"):
        raise Unavailable(f"{name}: {error.get('description', error)}")
    return answer


async def streams(bus: Bus) -> list[dict[str, Any]]:
    """Sizes of the streams and buckets, and how far their replicas are behind."""
    names = {subjects.STREAM_AGENT: "events", subjects.STREAM_WORKSPACE: "events"}
    names |= {subjects.bucket_stream(bucket): "records" for bucket in BUCKETS.values()}
    told = await asyncio.gather(*(stream(bus, name) for name in names), return_exceptions=True)
    return [_sizes(name, kind, info) for (name, kind), info in zip(names.items(), told, strict=True)]


def _sizes(name: str, kind: str, info: Any) -> dict[str, Any]:
    if isinstance(info, BaseException):
        return {"stream": name, "kind": kind, "error": getattr(info, "message", str(info))}
    config, state, cluster = info["config"], info["state"], info.get("cluster") or {}
    peers = cluster.get("replicas") or []
    first, last = _seconds(state.get("first_ts", "")), _seconds(state.get("last_ts", ""))
    now = time.time()
    empty = not state["messages"]
    return {
        "stream": name,
        "kind": kind,
        "messages": state["messages"],
        "bytes": state["bytes"],
        "limit_bytes": config["max_bytes"] if config.get("max_bytes", -1) > 0 else None,
        "subjects": state.get("num_subjects", 0),
        "first_seq": state["first_seq"],
        "last_seq": state["last_seq"],
        "oldest": None if first is None or empty else max(now - first, 0.0),
        "newest": None if last is None or empty else max(now - last, 0.0),
        "replicas": config.get("num_replicas", 1),
        "leader": cluster.get("leader", ""),
        "lag": max((peer.get("lag", 0) for peer in peers), default=0),
        "offline": [peer["name"] for peer in peers if peer.get("offline") or not peer.get("current", True)],
    }


async def asked(bus: Bus, verb: str, quiet: float = 0.15, patience: float = 1.0) -> list[dict[str, Any]]:
    """What every replica of every service answers to PING, INFO or STATS: until none answered for `quiet` seconds.

    The first one is waited for `patience` seconds.
    """
    found: list[dict[str, Any]] = []
    async with bus.exchange(subjects.service_verb(verb), b"") as exchange:
        wait = patience
        while True:
            try:
                received = await exchange.next(wait)
            except Unavailable:
                return found
            wait = quiet
            try:
                told = orjson.loads(received.data)
            except ValueError:
                continue
            if isinstance(told, dict) and str(told.get("type", "")).startswith("io.nats.micro"):
                found.append(told)
