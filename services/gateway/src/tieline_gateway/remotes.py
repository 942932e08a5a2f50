"""Remotes, as this gateway sees them: which its connections expose, and the calls that reach those.

The decisions are in `registrations.py`, calls in `handing.py`; here is what waits: for the remotes service, for the
bucket's leader, for the broker to come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import structlog
from tieline_protocol import frontend, jetstream, jsontext, subjects
from tieline_protocol.bus import Bus, Received
from tieline_protocol.errors import BadMessage, Code, Refused, TielineError, Unavailable
from tieline_protocol.frontend import ACTIONS
from tieline_protocol.leases import ProcessLease
from tieline_protocol.remotes import name_token

from tieline_gateway.config import Limits
from tieline_gateway.connection import Connection
from tieline_gateway.handing import Handing
from tieline_gateway.leaving import Leaving, Start
from tieline_gateway.registrations import Registered, Registrations
from tieline_gateway.requests import Requests

log = structlog.get_logger()

_PAUSE = 1.0  # s between tries at what must be done in the end
_TRIES = 60
_LEASE = 5.0  # s that a registration waits for the gateway's lease


class Remotes:
    """The owner's side of remotes, for all connections of this gateway. `start` runs a task that ends with it."""

    def __init__(
        self,
        bus: Bus,
        lease: ProcessLease,
        requests: Requests,
        limits: Limits,
        start: Start,
        viewers: Mapping[str, Connection],
    ) -> None:
        self._bus = bus
        self._lease = lease
        self._requests = requests
        self._limits = limits
        self._start = start
        self._viewers = viewers  # by connection id
        self._registrations = Registrations()
        self._bucket = jetstream.Bucket(bus, subjects.BUCKET_REMOTES)
        self._acted = False
        self._checking: asyncio.Task[None] | None = None
        self._check_again = False
        self.leaving = Leaving(bus, lease, requests, start)
        self._handing = Handing(bus, lease, limits, viewers, self._registrations, self.leaving)
        self.calls = self._handing.calls

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Hear calls, and what becomes of names, until the block is left. Raises Unavailable."""
        writes = await self._bus.subscribe(
            subjects.bucket_key(subjects.BUCKET_REMOTES, ">"), self._written, on_lost=self.check_all
        )
        try:
            async with self._handing.listening():
                yield
        finally:
            await writes.close()

    def tick(self, now: float) -> None:
        """Once a second."""
        acts = self._lease.may_act()
        if acts and not self._acted:
            self.check_all()  # our registrations may have fallen with the lease
        self._acted = acts
        self._handing.tick(now)

    # What connections ask for

    async def connect(self, viewer: Connection, wanted: frontend.RemoteConnect, trace: str | None) -> bytes:
        """Expose functions; the answer's payload. Raises TielineError."""
        name = wanted.remotename
        await self._alive()
        async with viewer.remotes_lock:
            known = self._registrations.get(viewer.id, name)
            if known is None and self._registrations.count(viewer.id) >= self._limits.remotes:
                raise Refused(Code.TOO_LARGE, "too many remotes are registered on this connection")
            return await self._register(viewer, name, wanted.given(), trace)

    async def _alive(self) -> None:
        """Without a lease a registration would stand for nobody. Raises Unavailable."""
        until = asyncio.get_running_loop().time() + _LEASE
        while not self._lease.may_act():
            if asyncio.get_running_loop().time() >= until:
                raise Unavailable("this gateway has no lease now")
            await asyncio.sleep(0.05)

    async def _register(
        self, viewer: Connection, name: str, payload: dict[str, Any], trace: str | None = None
    ) -> bytes:
        registrations = self._registrations
        key = subjects.remote_key(viewer.user, name_token(name))
        id = secrets.token_hex(12)
        before = registrations.get(viewer.id, name)
        registrations.writing(key, viewer.id, name, id, payload)
        facts = {
            **payload,
            "gateway": self._lease.id,
            "connection": viewer.id,
            "registration": id,
            "connected_at": int(time.time() * 1000),
        }
        try:
            action = ACTIONS["remote-connect"]
            told = await self._requests.service(
                action, self._requests.make(action, viewer.user, facts, trace)
            )
        except BaseException as exc:
            if isinstance(exc, TielineError) and not isinstance(exc, Unavailable):
                registrations.refused(viewer.id, name, id, before)
            else:
                registrations.unknown(viewer.id, name)
            self._too_late(viewer, name)
            raise
        if registrations.written(viewer.id, name, id):
            self._start(self._ask(key), f"who has {key}")
        self._too_late(viewer, name)
        return told

    def _too_late(self, viewer: Connection, name: str) -> None:
        """The socket closed while its registration was under way: it must go again."""
        if viewer.id not in self._viewers:
            self._registrations.left(viewer.id, name)
            self.leaving.begin(viewer.user, viewer.id, set(), [name])

    async def disconnect(self, viewer: Connection, wanted: frontend.OfRemote, trace: str | None) -> bytes:
        """Expose functions no more; the answer's payload. Raises TielineError."""
        async with viewer.remotes_lock:
            self._registrations.left(viewer.id, wanted.remotename)
            return await self.leaving.removed(viewer.user, viewer.id, wanted.remotename, trace)

    async def listed(self, viewer: Connection, trace: str | None) -> bytes:
        """All remotes of the user; the answer's payload. Raises TielineError."""
        action = ACTIONS["remote-list"]
        request = self._requests.make(action, viewer.user, {"connection": viewer.id}, trace)
        return await self._requests.service(action, request)

    # What becomes of names

    def _written(self, received: Received) -> None:
        key = received.subject.removeprefix(subjects.bucket_key(subjects.BUCKET_REMOTES, ""))
        if key in self._registrations and self._registrations.heard(key, _registration(received.data)):
            self._start(self._ask(key), f"who has {key}")

    def check_all(self) -> None:
        """Writes may have been missed, or our registrations removed: ask for every name that is registered here."""
        self._check_again = True
        if self._checking is None or self._checking.done():
            self._checking = self._start(self._check(), "who has the names registered here")

    async def _check(self) -> None:
        while self._check_again:
            self._check_again = False
            for key in self._registrations.keys:
                await self._ask(key)

    async def _ask(self, key: str) -> None:
        """Ask the bucket's leader who has a name, and draw the consequences."""
        for _ in range(_TRIES):
            try:
                await self._bus.wait_connected()
                entry = await self._bucket.get(key)
                break
            except Unavailable as exc:
                log.info("a registration cannot be read now", error=exc.message)
            await asyncio.sleep(_PAUSE)
        else:
            return
        verdict = self._registrations.judged(key, _registration(entry.value) if entry is not None else None)
        for lost in verdict.replaced:
            viewer = self._viewers.get(lost.connection)
            if viewer is not None:
                log.info("a remote was taken over", connection=lost.connection, user=viewer.user)
                viewer.socket.answer(frontend.notification("remote-replaced", {"remotename": lost.name}))
        for missing in verdict.missing:
            for call in self.calls.closed(missing.connection):  # they fell with the registration
                self._handing.cancel_at_owner(call, "disconnected")
            await self._again(missing)

    async def _again(self, missing: Registered) -> None:
        viewer = self._viewers.get(missing.connection)
        if viewer is None or not self._lease.may_act():  # without the lease it would fall again
            return
        async with viewer.remotes_lock:
            known = self._registrations.get(missing.connection, missing.name)
            if known is not missing or known.writing:
                return
            log.info("a remote is registered again", connection=missing.connection, user=viewer.user)
            try:
                await self._register(viewer, missing.name, missing.payload)
            except TielineError as exc:
                log.warning("a remote could not be registered again", error=exc.message)

    # The end of a connection

    def closed(self, viewer: Connection) -> None:
        """A connection is gone: whoever waits for its answers hears so, and its remotes go."""
        replicas = {(call.replica, call.number) for call in self.calls.closed(viewer.id)}
        names = self._registrations.closed(viewer.id)
        if replicas or names:
            self.leaving.begin(viewer.user, viewer.id, replicas, names)


def _registration(record: bytes) -> str | None:
    """The registration id in a record; None where there is none (a removal)."""
    try:
        value = jsontext.loads(record)
        return str(value["registration"]) if isinstance(value, dict) and value.get("registration") else None
    except BadMessage:
        return None
