"""The calls that connections of this gateway make, until they end: one subscription hears all their answers.

It is the caller's half of a call as in tieline_protocol/calling.py, whose limits hold here too, without a task, a queue
and a timer for each call: thousands are under way, and most end within a millisecond.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Protocol

import structlog
from tieline_protocol import calling, jsontext, subjects
from tieline_protocol.bus import Bus, Received, status
from tieline_protocol.errors import BadMessage, Code, Refused, TielineError, Unavailable
from tieline_protocol.messages import outcome

log = structlog.get_logger()

_RESULT = b'{"payload":{"result":'
_ERROR = b'{"error":'
_BEAT = b'{"beat":true}'


class Caller(Protocol):
    """Who made a call, and hears of it: progress any number of times, then one end."""

    def accepted(self, request_id: str) -> None:
        """The call has an id."""

    def progressed(self, facts: dict[str, object]) -> None:
        """How far it is."""

    def returned(self, result: bytes) -> None:
        """The end: JSON text."""

    def failed(self, problem: TielineError) -> None:
        """The end."""


class _Call:
    __slots__ = ("body", "caller", "patience", "subject", "until", "wait")

    def __init__(self, caller: Caller, subject: str, body: bytes, until: float, patience: float) -> None:
        self.caller = caller
        self.subject = subject
        self.body = body  # until it is accepted
        self.until = until  # when it is silent for too long
        self.patience = patience  # until when it is sent again where nobody hears it
        self.wait = calling.FIRST_WAIT


class Callers:
    """By the last token of the subject where each hears its answers."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._inbox = bus.inbox()
        self._numbers = itertools.count(1)
        self._calls: dict[str, _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Hear answers until the block is left. Raises Unavailable."""
        subscription = await self._bus.subscribe(f"{self._inbox}.*", self._heard)
        ended = self._bus.on_disconnect(self._lost)
        try:
            yield
        finally:
            ended()
            await subscription.close()

    async def call(self, user: str, body: bytes, timeout_ms: int, caller: Caller) -> str:
        """Send a call; what names it here. Raises Unavailable, Refused (too_large); then the caller hears nothing."""
        now = asyncio.get_running_loop().time()
        patience = now + min(timeout_ms / 1000, calling.PATIENCE_NOBODY)
        number = format(next(self._numbers), "x")
        subject = subjects.rpc("remotes", "call", user)
        self._calls[number] = _Call(caller, subject, body, now + calling.ACCEPT, patience)
        reply = f"{self._inbox}.{number}"
        try:
            if not self._bus.publish_quickly(subject, body, reply, later=True):
                await self._bus.publish(subject, body, reply)
        except BaseException:
            self._calls.pop(number, None)
            raise
        return number

    def forget(self, number: str) -> None:
        """Nobody wants to hear of a call any more. It goes on."""
        self._calls.pop(number, None)

    def tick(self, now: float) -> None:
        """Once a second: who is silent for too long?"""
        for number, call in list(self._calls.items()):
            if now >= call.until:
                self._end(number, call, "the remotes service fell silent; the call may have run")

    def _heard(self, received: Received) -> None:
        number = received.subject.rpartition(".")[2]
        call = self._calls.get(number)
        if call is None:
            return
        data = received.data
        if data.startswith(_RESULT):
            del self._calls[number]
            call.caller.returned(data[len(_RESULT) : -2])
        elif data.startswith(_ERROR):
            del self._calls[number]
            call.caller.failed(_refusal(data))
        elif not data and status(received) == "503":
            self._nobody(number, call)
        else:
            call.until = asyncio.get_running_loop().time() + calling.PATIENCE
            if data != _BEAT:
                self._told(call, data)

    def _told(self, call: _Call, data: bytes) -> None:
        try:
            message = jsontext.loads(data)
            if accepted := message.get("accepted"):
                call.body = b""
                call.caller.accepted(accepted["requestId"])
            elif (progress := message.get("progress")) is not None:
                call.caller.progressed(progress)
        except (BadMessage, AttributeError, KeyError, TypeError) as exc:
            log.warning("what was said of a call could not be understood", error=repr(exc))

    def _nobody(self, number: str, call: _Call) -> None:
        """Certainly not delivered: a replica that has just started, or is about to, may hear it."""
        loop = asyncio.get_running_loop()
        if not call.body or loop.time() + call.wait > call.patience:
            self._end(number, call, "the remotes service is not there")
            return
        loop.call_later(call.wait, self._again, number)
        call.wait *= 2

    def _again(self, number: str) -> None:
        call = self._calls.get(number)
        if call is None:
            return
        try:
            self._bus.publish_now(call.subject, call.body, f"{self._inbox}.{number}")
        except TielineError as exc:
            self._end(number, call, exc.message)

    def _lost(self) -> None:
        for number, call in list(self._calls.items()):
            self._end(number, call, "the broker was lost; the call may have run")

    def _end(self, number: str, call: _Call, why: str) -> None:
        self._calls.pop(number, None)
        call.caller.failed(Unavailable(why))


def _refusal(data: bytes) -> TielineError:
    try:
        outcome(data)
    except TielineError as exc:
        return exc
    return Refused(Code.INTERNAL, "the call ended without a word")
