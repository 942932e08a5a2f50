"""What one connection says of remote calls: as a caller (call, cancel), as an owner (result, progress).

Nothing here decodes a result: it is checked once and spliced into the next message.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import structlog
from tieline_protocol import calling, frontend, jsontext, subjects, tracing
from tieline_protocol.errors import (
    BadSubject,
    Code,
    NoResponders,
    Refused,
    TielineError,
    Unavailable,
)
from tieline_protocol.frontend import Frame, FrameId
from tieline_protocol.messages import outcome
from tieline_protocol.remotes import CALL_TIMEOUT_MS
from tieline_protocol.tracing import Span

from tieline_gateway import metrics, results
from tieline_gateway.asking import Asking
from tieline_gateway.connection import Connection
from tieline_gateway.owned_calls import OwnedCall
from tieline_gateway.parts import Parts
from tieline_gateway.results import Told

log = structlog.get_logger()

_REPLY = 5.0  # s for the replica to take an answer
_LARGE = 64 * 1024  # bytes of a result that the next frame of its connection waits for
_NOT_FOUND = "there is no such request"


class _Made:
    """One call that this connection made, told to its socket."""

    __slots__ = ("_calling", "_id", "_request_id", "_span", "number", "size")

    def __init__(self, calling: Calling, id: FrameId, size: int, span: Span) -> None:
        self._calling = calling
        self._span = span
        self._id = id
        self._request_id = ""
        self.size = size
        self.number = ""

    def accepted(self, request_id: str) -> None:
        if not self._request_id:
            self._request_id = request_id
            self._calling.asking.answered(self._id, "remote-call", {"requestId": request_id})

    def progressed(self, facts: dict[str, Any]) -> None:
        self._calling.viewer.socket.answer(frontend.notification("remote-call-progress", facts))

    def returned(self, result: bytes) -> None:
        self._span.end()
        self._calling.over(self)
        self._calling.viewer.socket.answer(frontend.call_result(self._request_id, result))

    def failed(self, problem: TielineError) -> None:
        viewer = self._calling.viewer
        self.given_up(problem.code)
        self._calling.over(self)
        if self._request_id:
            facts = {"requestId": self._request_id, "error": problem.message, "code": problem.code}
            viewer.socket.answer(frontend.notification(results.ACTION, facts))
        else:
            self._calling.asking.refused(self._id, "remote-call", problem)

    def given_up(self, why: str) -> None:
        """Nobody hears its end here."""
        self._span.fail(why)
        self._span.end()


class Calling:
    """The calls of one connection. Made at the first of them."""

    __slots__ = ("_bytes", "_made", "_parts", "_sender", "asking", "viewer")

    def __init__(self, parts: Parts, viewer: Connection, asking: Asking) -> None:
        self.viewer = viewer
        self.asking = asking
        self._parts = parts
        self._sender = parts.remotes.leaving.sender(viewer.id)
        self._made: set[_Made] = set()
        self._bytes = 0  # of the frames of calls under way

    def __bool__(self) -> bool:
        return bool(self._made)

    # The caller

    async def call(self, frame: Frame, wanted: frontend.RemoteCall, size: int) -> None:
        """Make a call. Its id is the answer, its end a notification. Raises TielineError."""
        viewer = self.viewer
        limits = self._parts.config.limits
        full = self._bytes and self._bytes + size > limits.in_flight_bytes
        if full or len(self._made) >= limits.calls:
            raise Refused(Code.BUSY, "too many calls are under way on this connection")
        timeout_ms = CALL_TIMEOUT_MS if wanted.timeout_ms is None else wanted.timeout_ms
        attributes = {
            "user.id": viewer.user,
            "tieline.remote.name": wanted.remotename,
            "tieline.remote.function": wanted.function,
        }
        span = tracing.begin("remote-call", "server", attributes, parent=frame.traceparent)
        body = calling.request(
            viewer.user, wanted.remotename, wanted.function, wanted.args, timeout_ms, span.traceparent
        )
        made = _Made(self, frame.id, size, span)
        self._made.add(made)
        self._bytes += size
        self.asking.begin(frame.id)
        try:
            made.number = await self._parts.callers.call(viewer.user, body, timeout_ms, made)
        except TielineError as exc:
            if made in self._made:  # else it was told already: the broker went away meanwhile
                made.failed(exc)

    def over(self, made: _Made) -> None:
        """A call that was made has ended."""
        if made in self._made:
            self._made.discard(made)
            self._bytes -= made.size

    async def cancel(self, request_id: str, answered: bool) -> bytes:
        """Give a call of this user up. Raises TielineError."""
        try:
            subject, body = calling.cancellation(self.viewer.user, request_id)
        except BadSubject:
            raise Refused(Code.NOT_FOUND, _NOT_FOUND) from None
        if not answered:
            await self._parts.bus.publish(subject, body)
            return b"{}"
        return await self._ask(subject, body)

    def closed(self) -> None:
        """Nobody hears the ends of this connection's calls any more; the calls themselves go on."""
        for made in self._made:
            self._parts.callers.forget(made.number)
            made.given_up("disconnected")
        self._made.clear()

    # The owner

    async def told(self, told: Told) -> None:
        """A result or an error, as notification or request."""
        remotes, viewer = self._parts.remotes, self.viewer
        call = remotes.calls.ended(told.request_id, viewer.id)
        if call is None:
            self._dropped(told.request_id)
            if told.id is not None:
                self.asking.refused(told.id, results.ACTION, Refused(Code.NOT_FOUND, _NOT_FOUND))
            return
        verb, body = told.verb, told.body
        most = self._parts.config.limits.result_bytes
        if verb == "result" and len(body) > most:
            verb, body = "error", _too_large(len(body), most)
        if told.id is None:
            await self._say(call, verb, body)
            return
        confirming = self._confirm(call, verb, body, told.id)
        if len(body) > _LARGE:  # no more of those at once than fit into memory
            await confirming
        else:
            self._parts.start(confirming, f"answer of {call.request_id}")

    async def unreadable(self, text: str, reason: str) -> None:
        """A frame that is no JSON: it may have been meant to end a call that is awaited from here."""
        remotes, viewer = self._parts.remotes, self.viewer
        for told in results.salvaged(text, reason):
            if (call := remotes.calls.ended(told.request_id, viewer.id)) is not None:
                await self._say(call, told.verb, told.body)

    async def progress(self, told: frontend.RemoteCallProgress) -> None:
        """How far a call is. Raises Refused (not_found)."""
        call = self._parts.remotes.calls.awaited(told.requestId, self.viewer.id)
        if call is None:
            self._dropped(told.requestId)
            raise Refused(Code.NOT_FOUND, _NOT_FOUND)
        facts = told.model_dump(exclude={"requestId"}, exclude_none=True)
        with contextlib.suppress(Unavailable):  # news of the moment
            await self._publish(call, "progress", jsontext.dumps(facts))

    async def _say(self, call: OwnedCall, verb: str, body: bytes) -> None:
        try:
            await self._publish(call, verb, body)
        except Unavailable:
            self._parts.start(self._say_later(call, verb, body), f"answer of {call.request_id}")

    async def _say_later(self, call: OwnedCall, verb: str, body: bytes) -> None:
        """The broker is away: the call may outlive that."""
        bus = self._parts.bus
        with contextlib.suppress(TimeoutError, Unavailable):
            async with asyncio.timeout_at(call.until):
                await bus.wait_connected()
            await self._publish(call, verb, body)

    async def _publish(self, call: OwnedCall, verb: str, body: bytes) -> None:
        bus = self._parts.bus
        subject = subjects.call(call.replica, call.number, verb)
        try:
            if not bus.publish_quickly(subject, self._sender + body, later=True):
                await bus.publish(subject, self._sender + body)
        except Refused as exc:  # the broker takes less than we do
            error = results.failed(exc.message, Code.TOO_LARGE)
            await bus.publish(subjects.call(call.replica, call.number, "error"), self._sender + error)

    async def _confirm(self, call: OwnedCall, verb: str, body: bytes, id: FrameId) -> None:
        asking = self.asking
        try:
            subject = subjects.call(call.replica, call.number, verb)
            asking.answered(id, results.ACTION, await self._ask(subject, self._sender + body))
        except TielineError as exc:
            asking.refused(id, results.ACTION, exc)

    async def _ask(self, subject: str, body: bytes) -> bytes:
        try:
            outcome((await self._parts.bus.request(subject, body, _REPLY)).data)
        except NoResponders:
            raise Refused(Code.NOT_FOUND, _NOT_FOUND) from None
        return b"{}"

    def _dropped(self, request_id: str) -> None:
        metrics.DROPPED_ANSWERS.inc()
        asked = self._parts.remotes.calls.asked(request_id)
        log.info(
            "what was said of a call that is not awaited from there was dropped",
            request=request_id[:140],
            connection=self.viewer.id,
            asked=asked,
            user=self.viewer.user,
        )


def _too_large(size: int, most: int) -> bytes:
    message = f"the result has {size:,} bytes, at most {most:,} are passed on"
    return results.failed(message, Code.TOO_LARGE)
