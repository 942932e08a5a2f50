"""A call on its way to whoever serves it: accepted, handed over, and anew where what was known is out of date."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import structlog
from tieline_protocol import logs
from tieline_protocol.bus import Bus, Received
from tieline_protocol.errors import Refused, TielineError, Unavailable

from tieline_remotes.calls import Asked, Call, Calls
from tieline_remotes.connection import RemoteConnection, Stale
from tieline_remotes.directory import Registration
from tieline_remotes.external_calls import ExternalCalls
from tieline_remotes.registry import Registry

log = structlog.get_logger()


class Started(NamedTuple):
    """A call that has an id and is not handed over yet."""

    call: Call
    request_id: str
    registration: Registration
    function: str
    args: dict[str, Any]
    traceparent: str | None


class Handing:
    """`failed` ends a call that could not be handed over. `group` owns the tasks of what is tried anew."""

    def __init__(
        self,
        bus: Bus,
        registry: Registry,
        calls: Calls,
        external: ExternalCalls,
        group: asyncio.TaskGroup,
        failed: Callable[[Call, Refused], Awaitable[None]],
    ) -> None:
        self._bus = bus
        self._registry = registry
        self._calls = calls
        self._external = external
        self._group = group
        self._failed = failed

    def quickly(self, started: Started) -> bool:
        """Accept a call and hand it over without waiting; False where something must be waited for."""
        call = started.call
        connection = RemoteConnection(self._bus, started.registration.record)

        def handed(answered: Received | Exception) -> None:
            try:
                connection.taken(answered)
            except (Refused, Unavailable) as exc:
                if self._calls.get(call.id) is None:  # over by now, and this replica with it, maybe
                    return
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

    async def carried(self, started: Started, failed: TielineError | None = None) -> None:
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
            await self._failed(call, exc)
        except Unavailable as exc:  # it may run, and its result may still come
            log.warning("a call's hand-over was not confirmed", call=started.request_id, error=exc.message)

    async def _again(self, started: Started, failed: TielineError) -> None:
        logs.about(user=started.call.user)
        await self.carried(started, failed)

    async def _handed(self, started: Started) -> None:
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

    async def _handed_anew(self, started: Started) -> None:
        """To whoever has the name now: what was known of it is out of date. Raises Stale where that is gone too."""
        call = started.call
        registration, function, args = await self._registry.newest(
            call.user, call.remotename, started.function, started.args
        )
        if self._calls.get(call.id) is None:  # cancelled, say, and nobody would wait for what runs
            return
        call.asked = Asked(registration.record.gateway, registration.record.connection)
        connection = RemoteConnection(self._bus, registration.record)
        await connection.call(started.request_id, function, args, self._left(call), started.traceparent)


def _accepted(started: Started) -> bytes:
    return b'{"accepted":{"requestId":"%b"}}' % started.request_id.encode()
