"""Remotes, as this gateway sees them: which its connections expose, and the calls that reach those.

The decisions are in `registrations.py` and `owned_calls.py`; here is what waits: for the remotes service, for the
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
from tieline_protocol import frontend, jetstream, jsontext, leases, subjects
from tieline_protocol.bus import Bus, Received
from tieline_protocol.errors import BadMessage, Code, Refused, TielineError, Unavailable
from tieline_protocol.frontend import ACTIONS
from tieline_protocol.leases import ProcessLease
from tieline_protocol.messages import answer, refusal
from tieline_protocol.remotes import name_token

from tieline_gateway.config import Limits
from tieline_gateway.connection import Connection
from tieline_gateway.leaving import Leaving, Start
from tieline_gateway.owned_calls import OwnedCall, OwnedCalls
from tieline_gateway.registrations import Registered, Registrations
from tieline_gateway.requests import Requests

log = structlog.get_logger()

_TAKEN = answer({})
_SLACK = 5.0  # s beyond a call's time within which its replica says that it is over
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
        self.calls = OwnedCalls()
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

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Hear calls, and what becomes of names, until the block is left. Raises Unavailable."""
        calls = await self._bus.subscribe(subjects.connections(self._lease.id), self._about_connection)
        writes = await self._bus.subscribe(
            subjects.bucket_key(subjects.BUCKET_REMOTES, ">"), self._written, on_lost=self.check_all
        )
        try:
            async with leases.watching(self._bus, self._process_ended):
                yield
        finally:
            await writes.close()
            await calls.close()

    def tick(self, now: float) -> None:
        """Once a second."""
        acts = self._lease.may_act()
        if acts and not self._acted:
            self.check_all()  # our registrations may have fallen with the lease
        self._acted = acts
        for call in self.calls.overdue(now):
            self._cancelled_at_owner(call, "timeout")

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

    # What the remotes service says to a connection

    def _about_connection(self, received: Received) -> None:
        reply = self._answer(received)
        if received.reply:
            with contextlib.suppress(Unavailable):
                self._bus.publish_now(received.reply, reply)

    def _answer(self, received: Received) -> bytes:
        connection, verb = received.subject.split(".")[-2:]
        try:
            value = jsontext.loads(received.data)
            match verb:
                case "remote-call":
                    self._call(connection, value)
                    return _TAKEN
                case "remote-call-cancel":
                    request_id, reason = value["requestId"], value.get("reason", "cancelled")
                    if not isinstance(request_id, str) or not isinstance(reason, str):
                        raise BadMessage("requestId and reason must be texts")
                    call = self.calls.ended(request_id, connection)
                    if call is not None:
                        self._cancelled_at_owner(call, reason)
                    return _TAKEN
                case _:
                    raise BadMessage(f"unknown verb {verb!r:.40}")
        except TielineError as exc:
            return refusal(exc)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            return refusal(Refused(Code.BAD_REQUEST, f"not a message about a connection: {exc!r:.200}"))

    def _call(self, connection: str, value: dict[str, Any]) -> None:
        """Write a call to its socket. Raises Refused; then nothing runs."""
        payload, budget = value["payload"], int(value["budget_ms"])
        request_id, name = payload["requestId"], payload["remotename"]
        if not self._lease.may_act():  # this may have waited here longer than anybody waits for it
            raise Refused(Code.CONFLICT, "this gateway is not sure to be alive")
        viewer = self._viewers.get(connection)
        if viewer is None or not viewer.socket.open or viewer.user != value["user"]:
            if viewer is None and isinstance(name, str):  # it should have gone with its connection
                self.leaving.begin(str(value["user"]), connection, set(), [name])
            raise Refused(Code.NOT_FOUND, "the connection is gone")
        if not self._registrations.accepts(connection, name, payload["registration"]):
            raise Refused(Code.CONFLICT, "the remote was registered anew")
        if self.calls.count(connection) >= self._limits.calls:
            raise Refused(Code.BUSY, "too many calls are under way on the remote's connection")
        replica, number = subjects.parse_request_id(request_id)
        until = asyncio.get_running_loop().time() + budget / 1000 + _SLACK
        if not self.calls.handed(OwnedCall(request_id, replica, number, connection, until)):
            raise Refused(Code.BAD_REQUEST, "this call was handed over before")
        facts = {
            "requestId": request_id,
            "remotename": name,
            "function": payload["function"],
            "args": payload["args"],
            "deadline_ms": budget,
        }
        viewer.socket.answer(frontend.notification("remote-call", facts, value.get("traceparent")))

    async def _process_ended(self, process: str) -> None:
        for call in self.calls.replica_ended(process):
            self._cancelled_at_owner(call, "unavailable")

    def _cancelled_at_owner(self, call: OwnedCall, reason: str) -> None:
        viewer = self._viewers.get(call.connection)
        if viewer is not None:
            facts = {"requestId": call.request_id, "reason": reason}
            viewer.socket.answer(frontend.notification("remote-call-cancel", facts))

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
                self._cancelled_at_owner(call, "disconnected")
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
