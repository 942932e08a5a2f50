"""Who exposes what: registrations in a bucket, answered from memory.

Memory forgets a registration when it hears that it was written; what is not in memory is read from the bucket's
leader, so that "not there" is never said from memory alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import jsonschema_rs
import structlog
from tieline_protocol import jetstream, subjects
from tieline_protocol.bus import Bus, Received
from tieline_protocol.errors import BadMessage
from tieline_protocol.remotes import RemoteFunction, RemoteRecord, name_token

from tieline_remotes.schema import compile_schema

log = structlog.get_logger()

MAX_REMEMBERED = 50_000  # registrations; above it memory starts anew


@dataclass(slots=True)
class Registration:
    """A registration as it is used: its functions by name, schemas compiled at first use."""

    record: RemoteRecord
    revision: int
    functions: dict[str, RemoteFunction]
    _validators: dict[str, jsonschema_rs.Draft202012Validator] = field(default_factory=dict)

    def validator(self, function: str) -> jsonschema_rs.Draft202012Validator:
        validator = self._validators.get(function)
        if validator is None:
            validator = self._validators[function] = compile_schema(self.functions[function].parameters)
        return validator


class Directory:
    """The registrations of all users."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = jetstream.Bucket(bus, subjects.BUCKET_REMOTES)
        self._known: dict[str, Registration] = {}
        self._writes = 0  # heard so far: a read that a write overtook is not remembered

    def __len__(self) -> int:
        return len(self._known)

    @contextlib.asynccontextmanager
    async def following(self, bus: Bus) -> AsyncIterator[None]:
        """Hear what is written, until the block is left."""
        everything = subjects.bucket_key(subjects.BUCKET_REMOTES, ">")
        subscription = await bus.subscribe(everything, self._heard, on_lost=self._forget)
        try:
            yield
        finally:
            await subscription.close()

    def _heard(self, received: Received) -> None:
        self._writes += 1
        self._known.pop(received.subject.removeprefix(subjects.bucket_key(subjects.BUCKET_REMOTES, "")), None)

    def _forget(self) -> None:
        self._writes += 1
        self._known.clear()

    def remembered(self, user: str, remotename: str) -> Registration | None:
        """What memory says; None says nothing."""
        return self._known.get(subjects.remote_key(user, name_token(remotename)))

    async def get(self, user: str, remotename: str, *, fresh: bool = False) -> Registration | None:
        """A registration; `fresh`: from the leader, whatever memory says. Raises Unavailable."""
        key = subjects.remote_key(user, name_token(remotename))
        if not fresh and (known := self._known.get(key)) is not None:
            return known
        writes = self._writes
        entry = await self._bucket.get(key)
        registration = _registration(entry) if entry is not None else None
        if registration is not None and writes == self._writes:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known[key] = registration
        return registration

    async def of_user(self, user: str) -> list[Registration]:
        """All registrations of a user, oldest first. Raises Unavailable."""
        return await self._matching(subjects.remote_key(user, "*"))

    async def of_gateway(self, gateway: str) -> list[Registration]:
        """All registrations that belong to connections of a gateway. Raises Unavailable."""
        return [found for found in await self._matching("*.*") if found.record.gateway == gateway]

    async def _matching(self, keys: str) -> list[Registration]:
        found = [_registration(entry) for entry in await self._bucket.entries(keys)]
        return [registration for registration in found if registration is not None]

    async def put(self, record: RemoteRecord) -> None:
        """The last registration wins. Raises Unavailable."""
        key = subjects.remote_key(record.user, name_token(record.remotename))
        await self._bucket.put(key, record.encode())
        self._known.pop(key, None)

    async def remove(self, registration: Registration) -> bool:
        """Remove exactly this registration, never its successor. False: it was not the newest. Raises Unavailable."""
        record = registration.record
        key = subjects.remote_key(record.user, name_token(record.remotename))
        try:
            await self._bucket.delete(key, expected=registration.revision)
        except jetstream.WrongRevision:
            return False
        self._known.pop(key, None)
        return True


def _registration(entry: jetstream.Entry) -> Registration | None:
    try:
        record = RemoteRecord.decode(entry.value)
    except BadMessage as exc:
        log.warning("a registration cannot be read", key=entry.key, error=exc.message)
        return None
    return Registration(record, entry.revision, {function.name: function for function in record.functions})
