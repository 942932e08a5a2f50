"""Calls on their way to connections of this gateway: handed over, cancelled, ended with whoever wanted them.

What may answer them is decided in `owned_calls.py`, which registration counts in `registrations.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from tieline_protocol import frontend, jsontext, leases, subjects
from tieline_protocol.bus import Bus, Received
from tieline_protocol.errors import BadMessage, Code, Refused, TielineError, Unavailable
from tieline_protocol.leases import ProcessLease
from tieline_protocol.messages import answer, refusal

from tieline_gateway.config import Limits
from tieline_gateway.connection import Connection
from tieline_gateway.leaving import Leaving
from tieline_gateway.owned_calls import OwnedCall, OwnedCalls
from tieline_gateway.registrations import Registrations

_TAKEN = answer({})
_SLACK = 5.0  # s beyond a call's time within which its replica says that it is over


class Handing:
    """`calls` are those that connections of this gateway have to answer."""

    def __init__(
        self,
        bus: Bus,
        lease: ProcessLease,
        limits: Limits,
        viewers: Mapping[str, Connection],
        registrations: Registrations,
        leaving: Leaving,
    ) -> None:
        self.calls = OwnedCalls()
        self._bus = bus
        self._lease = lease
        self._limits = limits
        self._viewers = viewers  # by connection id
        self._registrations = registrations
        self._leaving = leaving

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Hear calls, and which replicas die, until the block is left. Raises Unavailable."""
        subject = subjects.connections(self._lease.id)
        calls = await self._bus.subscribe(subject, self._about_connection)
        try:
            async with leases.watching(self._bus, self._process_ended):
                yield
        finally:
            await calls.close()

    def tick(self, now: float) -> None:
        """Once a second."""
        for call in self.calls.overdue(now):
            self.cancel_at_owner(call, "timeout")

    def _about_connection(self, received: Received) -> None:
        reply = self._answer(received)
        if received.reply:
            with contextlib.suppress(Unavailable):
                if not self._bus.publish_quickly(received.reply, reply, later=True):
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
                        self.cancel_at_owner(call, reason)
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
                self._leaving.begin(str(value["user"]), connection, set(), [name])
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
            self.cancel_at_owner(call, "unavailable")

    def cancel_at_owner(self, call: OwnedCall, reason: str) -> None:
        """Tell whoever was asked that nobody waits any more."""
        viewer = self._viewers.get(call.connection)
        if viewer is not None:
            facts = {"requestId": call.request_id, "reason": reason}
            viewer.socket.answer(frontend.notification("remote-call-cancel", facts))
