"""The remotes service at work: calls from their acceptance to their one end. Who exposes what: registry.py."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import Any

import structlog
from tieline_protocol import calling, jsontext, leases, logs, subjects, tracing
from tieline_protocol.bus import Bus, Received
from tieline_protocol.errors import BadMessage, Code, Refused, TielineError, Unavailable
from tieline_protocol.messages import Request, answer, refusal
from tieline_protocol.remotes import LONGEST_TIMEOUT_MS
from tieline_protocol.tracing import Span

from tieline_remotes.calls import BEAT, Asked, Call, Calls, Cancel, Effect, Tell
from tieline_remotes.connection import cancel
from tieline_remotes.directory import Registration
from tieline_remotes.external import Externals
from tieline_remotes.external_calls import ExternalCalls
from tieline_remotes.handing import Handing, Started
from tieline_remotes.metrics import DROPPED, REMOTES, SECONDS, ended
from tieline_remotes.registry import Registry

log = structlog.get_logger()

_TICK = 0.1


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
        self._handing = Handing(
            bus, self.registry, self._calls, self._external, self._group, self._not_handed
        )

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
            return None if self._handing.quickly(started) else self._handing.carried(started)
        except Refused as exc:
            return self._handing.carried(started, exc)

    async def _call(self, reply: str, request: Request) -> bytes | None:
        logs.about(user=request.user)
        try:
            started = self._started(
                reply, request, await self.registry.wanted(request.user, *_names(request))
            )
        except TielineError as exc:
            return _refused(exc)
        await self._handing.carried(started)
        return None

    def _started(
        self, reply: str, request: Request, wanted: tuple[Registration, str, dict[str, Any]]
    ) -> Started:
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
        return Started(call, request_id, registration, function, args, span.traceparent)

    async def _not_handed(self, call: Call, why: Refused) -> None:
        await self._perform(self._calls.failed(call.id, why))

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
                if not self._bus.publish_quickly(effect.reply, effect.message, later=True):
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
            ended(outcome).inc()
            SECONDS.observe(now - call.began)
            if isinstance(call.mark, Span):
                if outcome != "answered":
                    call.mark.fail(outcome)
                call.mark.end()
        self._calls.ended.clear()


def _names(request: Request) -> tuple[Any, Any, Any]:
    payload = request.payload
    return payload.get("remotename"), payload.get("function"), payload.get("args", {})


def _refused(exc: TielineError) -> bytes:
    ended(exc.code).inc()
    return refusal(exc)


def _progress(request_id: str, told: dict[str, Any]) -> bytes:
    known = {key: told[key] for key in ("message", "progress", "total") if key in told}
    return jsontext.dumps({"progress": {"requestId": request_id, **known}})
