"""JetStream over a bus: what we use of its API, as plain requests.

nats-py has no call for batched direct gets or per-message expiry, and its key-value layer drops the expiry when it
updates; the API is a handful of JSON requests, so they are made here, each once.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson

from tieline_protocol import subjects
from tieline_protocol.bus import Bus, Received, status
from tieline_protocol.errors import Code, FateUnknown, NoResponders, Refused, TimedOut, Unavailable

READ_BYTES = 4 * 1024 * 1024  # one read: the server sends it without flow control
TIMEOUT = 5.0

_WRONG_LAST_SEQUENCE = 10071
_NO_MESSAGE = 10037
_ACK_SEQ = re.compile(rb'"seq":\s*(\d+)')


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored message."""

    subject: str
    seq: int
    data: bytes
    headers: dict[str, str] | None = None


class WrongRevision(Refused):
    """A compare-and-swap found something else than expected."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.CONFLICT, message)


class StreamRefused(Refused):
    """The server refuses a stream as it is asked for (it exists with an incompatible configuration)."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.INTERNAL, message)


def ack_sequence(data: bytes) -> int | None:
    """The stream sequence in a PubAck; None where it is an error."""
    match = _ACK_SEQ.search(data)
    return int(match[1]) if match and b'"error"' not in data else None


async def api(
    bus: Bus, subject: str, body: dict[str, Any] | None = None, timeout: float = TIMEOUT
) -> dict[str, Any]:
    """One call of the API: its answer, an `error` in it included. Raises Unavailable."""
    received = await bus.request(subject, orjson.dumps(body) if body is not None else b"", timeout)
    value: dict[str, Any] = orjson.loads(received.data)
    return value


async def ensure_stream(bus: Bus, config: dict[str, Any], *, update: bool = True) -> None:
    """Make a stream, or bring it up to `config` (`update`: else what exists stays as it is). Twice is as good as once.
    Where a stream begins is for whoever makes it to say. Raises StreamRefused, Unavailable.
    """
    name = config["name"]
    made = await api(bus, subjects.stream_api("CREATE", name), config)
    if "error" not in made:
        return
    told = await api(bus, subjects.stream_api("INFO", name))
    if "error" not in told:
        if not update:
            return
        # The server takes a later beginning, and at its next start forgets all that was stored before it.
        config = {**config, "first_seq": told["config"].get("first_seq", 0)}
        told = await api(bus, subjects.stream_api("UPDATE", name), config)
    if error := told.get("error"):
        if error.get("code") == 404:  # it is not there, and could not be made
            error = made["error"]
        if error.get("code") == 503:  # a cluster that has no leader yet
            raise Unavailable(f"stream {name}: {error.get('description', error)}")
        raise StreamRefused(f"stream {name}: {error.get('description', error)}")


async def publish(
    bus: Bus, subject: str, data: bytes, headers: dict[str, str] | None = None, timeout: float = TIMEOUT
) -> int:
    """Store one message and return its sequence. Raises WrongRevision, Unavailable, FateUnknown, TimedOut."""
    received = await bus.request(subject, data, timeout, headers)
    answer = orjson.loads(received.data)
    if error := answer.get("error"):
        if error.get("err_code") == _WRONG_LAST_SEQUENCE:
            raise WrongRevision(error.get("description", "wrong last sequence"))
        raise Unavailable(f"not stored: {error.get('description', error)}")
    return int(answer["seq"])


async def last_message(bus: Bus, stream: str, subject: str) -> Stored | None:
    """The newest message of a subject (wildcards allowed), from the stream's leader. Raises Unavailable."""
    return await _get(bus, stream, {"last_by_subj": subject})


async def first_message(bus: Bus, stream: str, subject: str, seq: int = 1) -> Stored | None:
    """The first message of a subject at or after `seq`, from the stream's leader. Raises Unavailable."""
    return await _get(bus, stream, {"seq": max(seq, 1), "next_by_subj": subject})


async def _get(bus: Bus, stream: str, body: dict[str, Any]) -> Stored | None:
    answer = await api(bus, subjects.leader_get(stream), body)
    if error := answer.get("error"):
        if error.get("err_code") == _NO_MESSAGE:
            return None
        raise Unavailable(f"cannot read {stream}: {error.get('description', error)}")
    message = answer["message"]
    headers = _parse_headers(base64.b64decode(message["hdrs"])) if message.get("hdrs") else None
    return Stored(message["subject"], message["seq"], base64.b64decode(message.get("data", "")), headers)


def _parse_headers(raw: bytes) -> dict[str, str]:
    lines = raw.decode("utf-8", "replace").split("\r\n")[1:]
    return {
        name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines) if value
    }


@dataclass(frozen=True, slots=True)
class Page:
    """One batched read: messages in stream order, whether more follow, and up to which sequence that is all."""

    messages: list[Stored]
    more: bool
    last_seq: int


async def read(
    bus: Bus, stream: str, subject: str, seq: int, max_bytes: int = READ_BYTES, count: int = 4096
) -> Page:
    """Messages of a subject (wildcards allowed) from `seq` on, from any replica. Raises Unavailable, TimedOut.

    A page without messages is the leader's word that none follow, up to its `last_seq`.
    """
    page = await _direct(
        bus, stream, {"seq": max(seq, 1), "next_by_subj": subject, "batch": count, "max_bytes": max_bytes}
    )
    if page.messages:
        return page
    last_seq = await last_sequence(
        bus, stream
    )  # before the look, so that what comes meanwhile lies beyond it
    first = await first_message(bus, stream, subject, seq)  # a replica that lags says "nothing" too
    return Page([first], True, first.seq) if first else Page([], False, last_seq)


async def last_sequence(bus: Bus, stream: str) -> int:
    """The newest sequence of a stream, from its leader. Raises Unavailable."""
    answer = await api(bus, subjects.stream_api("INFO", stream))
    if error := answer.get("error"):
        raise Unavailable(f"cannot read {stream}: {error.get('description', error)}")
    return int(answer["state"]["last_seq"])


async def read_last(bus: Bus, stream: str, wanted: list[str], up_to: int | None = None) -> Page:
    """The newest message of each subject, at or before `up_to` where given. Raises Unavailable, TimedOut."""
    body: dict[str, Any] = {"multi_last": wanted, "batch": 1024}
    if up_to:
        body["up_to_seq"] = up_to
    return await _direct(bus, stream, body)


async def _direct(bus: Bus, stream: str, body: dict[str, Any], timeout: float = TIMEOUT) -> Page:
    inbox = bus.inbox()
    queue: asyncio.Queue[Received | None] = asyncio.Queue()
    ended = bus.on_disconnect(lambda: queue.put_nowait(None))
    subscription = await bus.subscribe(inbox, queue.put_nowait, on_lost=lambda: queue.put_nowait(None))
    messages: list[Stored] = []
    try:
        await bus.publish(subjects.direct_get(stream), orjson.dumps(body), inbox)
        while True:
            try:
                async with asyncio.timeout(timeout):
                    received = await queue.get()
            except TimeoutError as exc:
                raise TimedOut(f"reading {stream}: nothing for {timeout:g} s") from exc
            if received is None:
                raise FateUnknown(f"reading {stream}: the connection broke")
            headers = received.headers or {}
            match status(received):
                case "":
                    messages.append(
                        Stored(
                            headers["Nats-Subject"],
                            int(headers["Nats-Sequence"]),
                            received.data,
                            dict(headers),
                        )
                    )
                case "204":
                    more = int(headers.get("Nats-Num-Pending", "0")) > 0
                    return Page(messages, more, int(headers.get("Nats-Last-Sequence", "0") or 0))
                case "404":
                    return Page(messages, False, int(headers.get("Nats-Last-Sequence", "0") or 0))
                case "503":
                    raise NoResponders(f"reading {stream}: no replica answers")
                case code:
                    raise Unavailable(f"reading {stream}: {code} {headers.get('Description', '')}")
    finally:
        ended()
        await subscription.close()


async def read_all(bus: Bus, stream: str, subject: str, seq: int = 1) -> AsyncIterator[Stored]:
    """All messages of a subject from `seq` on, page by page, until the leader has no more."""
    while (page := await read(bus, stream, subject, seq)).messages:
        for stored in page.messages:
            yield stored
        seq = page.messages[-1].seq + 1


async def purge(bus: Bus, stream: str, subject: str) -> None:
    """Forget all messages of a subject (wildcards allowed). Raises Unavailable."""
    answer = await api(bus, subjects.stream_api("PURGE", stream), {"filter": subject})
    if error := answer.get("error"):
        raise Unavailable(f"cannot purge {stream}: {error.get('description', error)}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A key's value; `revision` is the stream sequence of the write."""

    key: str
    value: bytes
    revision: int


# What a deleted key leaves, and what the server leaves of one that expired.
_MARKERS = {"KV-Operation", "Nats-Marker-Reason"}


class Bucket:
    """A key-value bucket (the layout of NATS's own, so that other tools can look into it)."""

    def __init__(self, bus: Bus, name: str) -> None:
        self._bus = bus
        self.name = name
        self._stream = subjects.bucket_stream(name)

    async def get(self, key: str) -> Entry | None:
        """From the leader, so never stale. Raises Unavailable."""
        return self._entry(await last_message(self._bus, self._stream, subjects.bucket_key(self.name, key)))

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        """Write and return the revision. `expected`: only over this revision; 0: only where nothing is.

        Raises WrongRevision, Unavailable.
        """
        headers = None if expected is None else {"Nats-Expected-Last-Subject-Sequence": str(expected)}
        return await publish(self._bus, subjects.bucket_key(self.name, key), value, headers)

    async def delete(self, key: str, expected: int | None = None, ttl: int | None = None) -> None:
        """Leave a marker that says the key is gone. `expected`: only over this revision. `ttl`: the marker goes too,
        after so many seconds, where the bucket allows it.

        Raises WrongRevision, Unavailable.
        """
        headers = {"KV-Operation": "DEL"}
        if ttl is not None:
            headers["Nats-TTL"] = f"{ttl}s"
        if expected is not None:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(expected)
        await publish(self._bus, subjects.bucket_key(self.name, key), b"", headers)

    async def entries(self, keys: str) -> list[Entry]:
        """All entries whose key matches (wildcards allowed), oldest write first. Raises Unavailable."""
        subject = subjects.bucket_key(self.name, keys)
        found: dict[str, Entry | None] = {}
        seq, end = 1, None
        while (page := await read(self._bus, self._stream, subject, seq)).messages:
            # What is written while this reads comes twice, as it was and as it is now, and may come for ever.
            again = all(stored.subject in found for stored in page.messages)
            for stored in page.messages:
                found.pop(stored.subject, None)
                found[stored.subject] = self._entry(stored)
            seq = page.messages[-1].seq + 1
            if again:
                end = end or await last_sequence(self._bus, self._stream)
                if seq > end:
                    break
        return [entry for entry in found.values() if entry is not None]

    def _entry(self, stored: Stored | None) -> Entry | None:
        if stored is None or (stored.headers and _MARKERS & stored.headers.keys()):
            return None
        return Entry(stored.subject.removeprefix(subjects.bucket_key(self.name, "")), stored.data, stored.seq)
