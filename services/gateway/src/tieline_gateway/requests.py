"""Requests on their way: to the owner of a session, or to any replica of streams; what happens when nobody answers.

Nobody there (certainly not delivered): the session's record tells whether it is worth trying again. A broken broker
connection or silence (perhaps delivered): sent again under the same id, which the owner answers once; when the owner
has changed, only what may be done twice is sent again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tieline_protocol import jsontext, subjects
from tieline_protocol.bus import Bus
from tieline_protocol.errors import (
    BadMessage,
    Code,
    FateUnknown,
    NoResponders,
    Refused,
    TielineError,
    TimedOut,
    Unavailable,
)
from tieline_protocol.frontend import Action, Route
from tieline_protocol.messages import Request, outcome

from tieline_gateway.heads import Records, ended

T = TypeVar("T")

_FIRST_WAIT, _MOST_WAIT = 0.05, 1.6
_SILENCE = 5.0  # an owner that took a request answers sooner, or has been replaced meanwhile
_SHORT_SILENCE = 1.5  # where somebody else answers too, and asking twice is the same
_LAST_WORD = 3.0  # for the service that answers for sessions that nobody owns
_KNOWN_OWNERS = 10_000

_HEAD, _TAIL = b'{"payload":', b"}"


def spliced(reply: bytes, most: int) -> bytes:
    """The payload in a reply, as JSON text. Raises Refused with the peer's code, BadMessage."""
    if len(reply) > most + len(_HEAD) + len(_TAIL):
        raise Refused(Code.TOO_LARGE, f"the answer has more than {most:,} bytes")
    if reply.startswith(_HEAD + b"{") and reply.endswith(b"}" + _TAIL):
        return reply[len(_HEAD) : -len(_TAIL)]
    return jsontext.dumps(outcome(reply))


class Requests:
    """Sends and repeats."""

    def __init__(self, bus: Bus, records: Records, result_bytes: int, patience: float) -> None:
        self._bus = bus
        self._records = records
        self._result_bytes = result_bytes
        self._patience = patience
        self._owners: OrderedDict[str, int] = OrderedDict()

    def make(self, action: Action, user: str, payload: dict[str, Any], trace: str | None) -> Request:
        """A request with an id of ours."""
        return Request(
            id=secrets.token_urlsafe(12),
            user=user,
            budget_ms=int(action.seconds * 1000),
            payload=payload,
            traceparent=trace,
        )

    async def send(self, action: Action, request: Request) -> bytes:
        """The payload of the answer, as JSON text. Raises TielineError."""
        if action.route is Route.SERVICE:
            return await self.service(action, request)
        return await self._owner(action, request)

    async def service(self, action: Action, request: Request) -> bytes:
        """The payload of the answer of any replica of a service, as JSON text. Raises TielineError."""
        subject = subjects.rpc(action.service, action.endpoint, request.user)
        loop = asyncio.get_running_loop()
        began = loop.time()
        wait = _FIRST_WAIT
        while True:
            left = began + action.seconds - loop.time()
            if left <= 0:
                raise TimedOut("no answer in time: whether it was done is not known")
            try:
                return await self.once(subject, request, min(left, _SILENCE) if action.repeat else left)
            except NoResponders:
                if loop.time() + wait >= began + self._patience:
                    raise Unavailable(f"the service {action.service} is not there now") from None
                await asyncio.sleep(wait)
                wait = min(wait * 2, _MOST_WAIT)
            except (FateUnknown, TimedOut):
                if not action.repeat:
                    raise
                await self._reconnected(began + action.seconds)

    async def _owner(self, action: Action, request: Request) -> bytes:
        session = request.payload[action.named]
        subject = subjects.command(request.user, session, action.name)
        loop = asyncio.get_running_loop()
        until = loop.time() + action.seconds
        patience = loop.time() + min(self._patience, action.seconds)
        wait = _FIRST_WAIT
        while True:
            owner = await self._steady(lambda: self._known_owner(session), until)
            left = until - loop.time()
            if left <= 0:
                raise TimedOut("no answer in time: whether it was done is not known")
            try:
                elsewhere = action.endpoint and action.named == "session_id"
                silence = _SHORT_SILENCE if elsewhere else _SILENCE
                return await self.once(subject, request, min(left, silence))
            except NoResponders:
                self._owners.pop(session, None)
                if (
                    answer := await self._nobody(action, request, loop.time() + wait >= patience)
                ) is not None:
                    return answer
                await asyncio.sleep(wait)
                wait = min(wait * 2, _MOST_WAIT)
            except (FateUnknown, TimedOut):
                await self._reconnected(until)
                self._owners.pop(session, None)
                now = await self._steady(lambda: self._known_owner(session), until)
                if now != owner and not action.repeat:
                    raise Unavailable("its owner has changed: whether it was done is not known") from None

    async def _nobody(self, action: Action, request: Request, last: bool) -> bytes | None:
        """Nobody owns the session or thread now. None: try again."""
        if action.named == "thread_id":
            return await self._take(action, request, last)
        session = request.payload["session_id"]
        until = asyncio.get_running_loop().time() + self._patience
        record = await self._steady(lambda: self._records.record(request.user, session), until)
        if record is None:
            raise Refused(Code.NOT_FOUND, "no such session")
        over = ended(record)
        if action.endpoint and (over or last):
            subject = subjects.rpc(action.service, action.endpoint, request.user)
            return await self.once(subject, request, max(_LAST_WORD, action.seconds - self._patience))
        if over:
            state = "is closed" if record.state == "closed" else f"failed: {record.reason or 'unknown'}"
            raise Refused(Code.CONFLICT, f"the session {state}")
        if last:
            raise Unavailable("nobody answers for the session now")
        return None

    async def _take(self, action: Action, request: Request, last: bool) -> bytes | None:
        """Ask any replica of the agent service, which takes the thread and answers. None: try again."""
        subject = subjects.rpc(action.service, action.endpoint, request.user)
        try:
            return await self.once(subject, request, min(action.seconds, _SILENCE))
        except (NoResponders, FateUnknown, TimedOut):  # what is asked of threads may be asked twice
            if last:
                raise Unavailable("nobody answers for the thread now") from None
        return None

    async def attempt(self, action: Action, request: Request) -> bytes:
        """One try at the owner, for requests that keep an order. Raises TielineError."""
        subject = subjects.command(request.user, request.payload["session_id"], action.name)
        return await self.once(subject, request, min(action.seconds, _SILENCE))

    async def once(self, subject: str, request: Request, seconds: float) -> bytes:
        """One try. Raises TielineError."""
        if not self._bus.connected:
            await self._reconnected(asyncio.get_running_loop().time() + seconds)
        reply = await self._bus.request(subject, request.encode(), seconds)
        try:
            return spliced(reply.data, self._result_bytes)
        except BadMessage as exc:
            raise TielineError("the answer could not be understood") from exc

    async def _steady(self, read: Callable[[], Awaitable[T]], until: float) -> T:
        """A read of a record, tried until it works. Raises Unavailable."""
        loop = asyncio.get_running_loop()
        while True:
            await self._reconnected(until)
            try:
                return await read()
            except Unavailable:
                if loop.time() + _MOST_WAIT > until:
                    raise
            await asyncio.sleep(_FIRST_WAIT)

    async def _reconnected(self, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._bus.wait_connected()
        except TimeoutError:
            raise Unavailable("the broker is away") from None

    async def _known_owner(self, session: str) -> int:
        """The epoch of the owner that we have last seen, so that a change shows."""
        known = self._owners.get(session)
        if known is None:
            known = self._owners[session] = await self._records.owner(session)
            if len(self._owners) > _KNOWN_OWNERS:
                self._owners.popitem(last=False)
        return known
