"""The remotes service at work: calls from their acceptance to their one end. Who exposes what: registry.py."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Iterable
from dataclasses import dataclass
from typing import Any

import structlog
from tieline_protocol import calling, jsontext, leases, logs, subjects, tracing
from tieline_protocol.bus import Bus, Received
from tieline_protocol.errors import BadMessage, Code, Refused, TielineError, Unavailable
from tieline_protocol.messages import Request, answer, refusal
from tieline_protocol.remotes import LONGEST_TIMEOUT_MS
from tieline_protocol.tracing import Span

from tieline_remotes.calls import BEAT, Asked, Call, Calls, Cancel, Effect, Tell
from tieline_remotes.connection import RemoteConnection, Stale, cancel
from tieline_remotes.directory import Registration
from tieline_remotes.external import Externals
from tieline_remotes.external_calls import ExternalCalls
from tieline_remotes.metrics import CALLS, DROPPED, REMOTES, SECONDS
from tieline_remotes.registry import Registry

log = structlog.get_logger()

_TICK = 0.1


@dataclass(frozen=True, slots=True)
class _Started:
    """A call that has an id and is not handed over yet."""

    call: Call
    request_id: str
    registration: Registration
    function: str
    args: dict[str, Any]
    traceparent: str | None


class Remotes:
    """One replica."""

    def __init__(self, bus: Bus, lease: leases.ProcessLease, externals: Externals) -> None:
        self._bus = bus
        self._lease = lease
        self.registry = Registry(bus, externals)
        self._calls = Calls()
        self._numbers = itertools.count(1)
        self._group = asyncio.TaskGroup()
        self._external = ExternalCalls(externals, self._group, self._answered, self._progressed)

    @contextlib.asynccontextmanager
    async def running(self, drain: float) -> AsyncIterator[Remotes]:
        """At work until the block is left; then calls under way get `drain` seconds to end."""
        async with (
            self._group as group,
            self.registry.following(),
            leases.watching(self._bus, self._ended),
        ):
            ticking = group.create_task(self._tick(), name="beats and deadlines of calls")
            server = await self._bus.serve(subjects.calls(self._lease.id), self._about_call, limit=4096)
            try:
                with REMOTES.of(self):
                    yield self
                    await self._drained(drain)
            finally:
                await self._perform(self._calls.stopping())
                await server.close()
                ticking.cancel()

    def __len__(self) -> int:
        """Calls under way."""
        return len(self._calls)

    @property
    def oldest(self) -> float | None:
        """When the longest of them began, by the monotonic clock."""
        return self._calls.oldest

    @property
    def remembered(self) -> int:
        """Registrations that are known without asking."""
        return len(self.registry)

    async def _drained(self, drain: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain):
                while len(self._calls):
                    await asyncio.sleep(_TICK)

    # Endpoints: calls

    def call(self, received: Received) -> Awaitable[bytes | None] | bytes | None:
        """Start a call. What comes back goes to the reply subject: accepted, beats, progress, one final.

        A remote that is known, behind a gateway that answers, costs no task: it is the way of almost every call.
        """
        if not received.reply:
            return None
        if not self._lease.may_act():  # nothing ran, and silence would cost whoever waits ten seconds
            return refusal(Unavailable("this replica is not sure to be alive, try again"))
        try:
            request = Request.decode(received.data)
            known = self.registry.known(request.user, *_names(request))
            if known is None or known[0].record.external is not None:
                return self._call(received.reply, request)
            started = self._started(received.reply, request, known)
        except TielineError as exc:
            return _refused(exc)
        try:
            return None if self._quickly(started) else self._carried(started)
        except Refused as exc:
            return self._carried(started, exc)

    async def _call(self, reply: str, request: Request) -> bytes | None:
        logs.about(user=request.user)
        try:
            started = self._started(
                reply, request, await self.registry.wanted(request.user, *_names(request))
            )
        except TielineError as exc:
            return _refused(exc)
        await self._carried(started)
        return None

    def _started(
        self, reply: str, request: Request, wanted: tuple[Registration, str, dict[str, Any]]
    ) -> _Started:
        """A call with an id, which will end. Raises Refused (busy)."""
        registration, function, args = wanted
        now = asyncio.get_running_loop().time()
        number = f"{next(self._numbers):x}"
        record = registration.record
        asked = Asked(record.gateway, record.connection)
        if record.external is not None:
            asked = Asked(self._lease.id, number)
        budget = min(max(request.budget_ms, 1), LONGEST_TIMEOUT_MS) / 1000
        call = Call(number, reply, request.user, record.remotename, asked, now + budget, now + BEAT, now)
        self._calls.started(call)
        request_id = f"{self._lease.id}-{number}"
        call.mark = span = tracing.begin(
            "remote-call",
            "server",
            {
                "rpc.system": "nats",
                "rpc.method": "remote-call",
                "tieline.remote.name": record.remotename,
                "tieline.remote.function": function,
                "tieline.request.id": request_id,
            },
            parent=request.traceparent,
        )
        return _Started(call, request_id, registration, function, args, span.traceparent)

    def _quickly(self, started: _Started) -> bool:
        """Accept a call and hand it over without waiting; False where something must be waited for."""
        call = started.call
        connection = RemoteConnection(self._bus, started.registration.record)

        def handed(answered: Received | Exception) -> None:
            try:
                connection.taken(answered)
            except (Refused, Unavailable) as exc:
                self._group.create_task(self._again(started, exc), name=f"hand-over of {started.request_id}")

        left = self._left(call)
        if not connection.call_quickly(
            started.request_id, started.function, started.args, left, started.traceparent, handed
        ):
            return False
        with contextlib.suppress(Unavailable):  # whoever waits sees the broker go, too
            self._bus.publish_now(call.reply, _accepted(started))
        return True

    def _left(self, call: Call) -> int:
        return max(int((call.deadline - asyncio.get_running_loop().time()) * 1000), 1)

    async def _carried(self, started: _Started, failed: TielineError | None = None) -> bytes | None:
        """Accept a call and hand it over; after a first hand-over that `failed` only what is left of that."""
        call = started.call
        try:
            if failed is None:
                await self._bus.publish(call.reply, _accepted(started))
                external = started.registration.record.external
                if external is not None:
                    self._external.begin(
                        call,
                        started.request_id,
                        external,
                        started.function,
                        started.args,
                        started.traceparent,
                    )
                else:
                    await self._handed(started)
            elif isinstance(failed, Stale):
                await self._handed_anew(started)
            else:
                raise failed
        except Refused as exc:
            await self._perform(self._calls.failed(call.id, exc))
        except Unavailable as exc:  # it may run, and its result may still come
            log.warning("a call's hand-over was not confirmed", call=started.request_id, error=exc.message)
        return None

    async def _again(self, started: _Started, failed: TielineError) -> None:
        logs.about(user=started.call.user)
        await self._carried(started, failed)

    async def _handed(self, started: _Started) -> None:
        connection = RemoteConnection(self._bus, started.registration.record)
        try:
            await connection.call(
                started.request_id,
                started.function,
                started.args,
                self._left(started.call),
                started.traceparent,
            )
        except Stale:
            await self._handed_anew(started)

    async def _handed_anew(self, started: _Started) -> None:
        """To whoever has the name now: what was known of it is out of date. Raises Stale where that is gone too."""
        call = started.call
        registration, function, args = await self.registry.newest(
            call.user, call.remotename, started.function, started.args
        )
        if self._calls.get(call.id) is None:  # cancelled, say, and nobody would wait for what runs
            return
        call.asked = Asked(registration.record.gateway, registration.record.connection)
        connection = RemoteConnection(self._bus, registration.record)
        await connection.call(started.request_id, function, args, self._left(call), started.traceparent)

    async def _answered(self, call: Call, final: bytes, size: int, outcome: str) -> None:
        await self._perform(self._calls.answered(call.id, call.asked, final, size, outcome) or [])

    async def _progressed(self, call: Call, told: dict[str, Any]) -> None:
        message = _progress(f"{self._lease.id}-{call.id}", told)
        await self._perform(self._calls.progressed(call.id, call.asked, message) or [])

    def _about_call(self, received: Received) -> bytes | Awaitable[bytes]:
        """What gateways and callers say of a call that this replica minted."""
        number, verb = received.subject.split(".")[-2:]
        head, _, body = received.data.partition(b"\n")
        try:
            facts = jsontext.loads(head)
            if verb == "cancel":
                effects = self._calls.cancelled(number, facts["user"])
            else:
                effects = self._from_owner(number, verb, facts, body)
        except (BadMessage, KeyError, TypeError) as exc:
            return refusal(Refused(Code.BAD_REQUEST, f"not a message about a call: {exc}"))
        if effects is None:
            DROPPED.inc()
            log.info("dropped", call=number, verb=verb, sender=head.decode(errors="replace")[:200])
            return refusal(Refused(Code.NOT_FOUND, "there is no such request"))
        if left := self._told(effects):
            return self._performed(left)
        self._count()
        return answer({})

    def _told(self, effects: list[Effect]) -> list[Effect]:
        """Tell what can be told at once; what is left needs to wait for something."""
        for position, effect in enumerate(effects):
            if not isinstance(effect, Tell):
                return effects[position:]
            try:
                if not self._bus.publish_quickly(effect.reply, effect.message):
                    return effects[position:]
            except TielineError:  # which `_perform` meets again
                return effects[position:]
        return []

    async def _performed(self, effects: list[Effect]) -> bytes:
        await self._perform(effects)
        return answer({})

    def _from_owner(self, number: str, verb: str, facts: dict[str, Any], body: bytes) -> list[Effect] | None:
        asker = Asked(facts["gateway"], facts["connection"])
        match verb:
            case "result":
                return self._calls.answered(number, asker, calling.result(body), len(body))
            case "error":
                told = jsontext.loads(body)
                code = Code(told["code"]) if told.get("code") in set(Code) else Code.INTERNAL
                final = refusal(Refused(code, str(told["error"])))
                return self._calls.answered(number, asker, final, len(body), "error")
            case "progress":
                request_id = f"{self._lease.id}-{number}"
                return self._calls.progressed(number, asker, _progress(request_id, jsontext.loads(body)))
            case "disconnected":
                return self._calls.disconnected(asker.gateway, asker.connection)
            case _:
                raise BadMessage(f"unknown verb {verb}")

    # What ends calls

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            await self._perform(self._calls.tick(asyncio.get_running_loop().time()))

    async def _ended(self, process: str) -> None:
        """A gateway is gone: so are the calls of its connections, and their registrations."""
        await self._perform(self._calls.disconnected(process))
        await self.registry.gateway_ended(process)

    async def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            try:
                if isinstance(effect, Cancel):
                    request_id = f"{self._lease.id}-{effect.call}"
                    if effect.asked.gateway == self._lease.id:
                        self._external.cancel(request_id)
                    else:
                        await cancel(self._bus, effect.asked, request_id, effect.reason)
                else:
                    await self._bus.publish(effect.reply, effect.message)
            except (Unavailable, Refused) as exc:
                log.warning("whoever waits for a call could not be told", error=exc.message)
        self._count()

    def _count(self) -> None:
        if not self._calls.ended:
            return
        now = asyncio.get_running_loop().time()
        for call, outcome in self._calls.ended:
            CALLS.labels(outcome=outcome).inc()
            SECONDS.observe(now - call.began)
            if isinstance(call.mark, Span):
                if outcome != "answered":
                    call.mark.fail(outcome)
                call.mark.end()
        self._calls.ended.clear()


def _names(request: Request) -> tuple[Any, Any, Any]:
    payload = request.payload
    return payload.get("remotename"), payload.get("function"), payload.get("args", {})


def _accepted(started: _Started) -> bytes:
    return b'{"accepted":{"requestId":"%b"}}' % started.request_id.encode()


def _refused(exc: TielineError) -> bytes:
    CALLS.labels(outcome=exc.code).inc()
    return refusal(exc)


def _progress(request_id: str, told: dict[str, Any]) -> bytes:
    known = {key: told[key] for key in ("message", "progress", "total") if key in told}
    return jsontext.dumps({"progress": {"requestId": request_id, **known}})
