"""One frontend connection: its frames understood, its requests under way, what it follows, until when it may.

Requests run concurrently under a cap; shell input keeps its order. Work goes on when the socket closes: only the
answer is dropped then.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, Protocol

import structlog
from tieline_protocol import frontend
from tieline_protocol.errors import Code, Refused, TielineError
from tieline_protocol.frontend import Frame
from websockets.exceptions import ConnectionClosed

from tieline_gateway import metrics, results
from tieline_gateway.access import Identity, identify
from tieline_gateway.asking import Asking, refuse
from tieline_gateway.calling import Calling
from tieline_gateway.close_codes import CloseCode, reason
from tieline_gateway.connection import Connection
from tieline_gateway.parts import Parts
from tieline_gateway.sockets import Socket
from tieline_gateway.subscriptions import Subscriptions

log = structlog.get_logger()


class House(Protocol):
    """Whose connection it is: the gateway."""

    @property
    def parts(self) -> Parts: ...

    def entered(self, viewer: Viewer) -> None:
        """A connection has said whose it is. Raises BadSubject."""

    def closing(self, viewer: Viewer) -> None:
        """A connection is about to be gone. Twice changes nothing."""

    def left(self, viewer: Viewer) -> None:
        """A connection is gone."""

    def jitter_ms(self) -> int:
        """When to come back."""


class Viewer(Connection):
    """A socket and who is behind it."""

    __slots__ = ("_calling", "_house", "_parts", "_subscriptions", "asking", "auth_until", "expires")

    def __init__(self, house: House, socket: Socket, now: float) -> None:
        super().__init__(socket)
        self._house = house
        self._parts = parts = house.parts
        self.expires = 0.0  # Unix seconds; 0 before a token came
        self.auth_until = now + parts.config.limits.auth_seconds
        self.asking = Asking(parts, socket, self._local)
        self._subscriptions: Subscriptions | None = None
        self._calling: Calling | None = None
        socket.prepare(parts.config.limits, self)

    @property
    def busy(self) -> bool:
        """Whether answers are awaited."""
        return bool(self.asking) or bool(self._calling) or self._parts.remotes.calls.count(self.id) > 0

    @property
    def facts(self) -> dict[str, Any]:
        """What operators are told of this connection, beside whose it is."""
        began = self.auth_until - self._parts.config.limits.auth_seconds
        return {
            "seconds": round(self.socket.loop.time() - began, 1),
            "logs": len(self._subscriptions) if self._subscriptions is not None else 0,
            "calls": self._parts.remotes.calls.count(self.id),
            "in_flight": len(self.asking),
            "waiting_bytes": self.socket.waiting_bytes,
            "peer": str((self.socket.remote_address or ("",))[0]),
        }

    @property
    def _calls(self) -> Calling:
        if self._calling is None:
            self._calling = Calling(self._parts, self, self.asking)
        return self._calling

    async def run(self) -> None:
        """Serve the socket until it closes."""
        try:
            if (token := self.socket.token) is not None:
                self.socket.token = None
                if not self._enter_by_subprotocol(token):
                    return
            while True:
                await self._received(await self.socket.recv())
        except ConnectionClosed:
            pass
        finally:
            self._gone()

    # Frames

    async def _received(self, message: str | bytes) -> None:
        try:
            if isinstance(message, bytes):
                raise frontend.BadFrame("binary frames mean nothing here: send text")
            if self.user and (told := results.quickly(message)) is not None and told.id not in self.asking:
                await self._told(told)
                return
            frame = frontend.parse(message)
        except frontend.BadFrame as exc:
            if isinstance(message, str) and self.user:
                await self._calls.unreadable(message, exc.message)
            refuse(self.socket, exc.id, exc.action, exc)
            return
        try:
            if frame.kind == "request":
                await self._request(frame, message)
            elif frame.kind == "notification" and self.user:
                await self._notified(frame, message)
        except TielineError as exc:
            if frame.kind == "request":
                refuse(self.socket, frame.id, frame.action, exc)

    async def _told(self, told: results.Told) -> None:
        if told.id is not None:
            self.asking.begin(told.id)
        await self._calls.told(told)

    async def _notified(self, frame: Frame, text: str) -> None:
        """The few things that a frontend may say without being answered; all others mean nothing."""
        match frame.action:
            case results.ACTION:
                await self._told(results.told(frame, text))
            case "remote-call-progress" | "remote-call-cancel":
                payload = frontend.payload(frontend.action(frame.action), frame.payload)
                await self._local(frame, payload)

    async def _request(self, frame: Frame, text: str) -> None:
        if frame.id in self.asking:
            raise Refused(Code.CONFLICT, "a request with this id is still under way")
        if not self.user and frame.action != "auth":
            raise Refused(Code.UNAUTHORIZED, "the first frame must be auth")
        action = frontend.action(frame.action)
        if frame.action == results.ACTION:
            await self._told(results.told(frame, text))
            return
        payload = frontend.payload(action, frame.payload)
        if isinstance(payload, frontend.Auth):
            self._auth(frame, payload)
        elif isinstance(payload, frontend.RemoteCall):
            await self._calls.call(frame, payload, len(text))
        else:
            await self.asking.put(self.user, frame, action, payload, len(text))

    # Identity

    def _enter_by_subprotocol(self, token: str) -> bool:
        try:
            identity = identify(token, self._parts.config.secret, time.time())
        except Refused:
            self.close(CloseCode.UNAUTHORIZED)
            return False
        self._enter(identity)
        self.socket.answer(frontend.notification("auth", self._welcome()))
        return True

    def _auth(self, frame: Frame, payload: frontend.Auth) -> None:
        try:
            identity = identify(payload.token, self._parts.config.secret, time.time())
            if self.user and identity.user != self.user:
                raise Refused(Code.UNAUTHORIZED, "this connection belongs to somebody else")
        except Refused as exc:
            refuse(self.socket, frame.id, frame.action, exc)
            if not self.user:
                self.close(CloseCode.UNAUTHORIZED)
            return
        if self.user:
            self.expires = identity.expires
        else:
            self._enter(identity)
        self.asking.answered(frame.id, frame.action, self._welcome())

    def _enter(self, identity: Identity) -> None:
        self.user, self.expires = identity.user, identity.expires
        self._house.entered(self)

    def _welcome(self) -> dict[str, Any]:
        limits = self._parts.config.limits
        return {
            "user_id": self.user,
            "connection_id": self.id,
            "protocol": frontend.PROTOCOL,
            "limits": {
                "frame_bytes": limits.frame_bytes,
                "result_bytes": limits.result_bytes,
                "in_flight": limits.in_flight,
                "subscriptions": limits.subscriptions,
            },
        }

    def check(self, now: float, wall: float) -> None:
        """Once a second: what has run out?"""
        socket = self.socket
        limits = self._parts.config.limits
        if not self.user:
            if now >= self.auth_until:
                self.close(CloseCode.AUTH_TIMEOUT)
        elif wall >= self.expires:
            self.close(CloseCode.EXPIRED)
        elif socket.stuck_since is not None and now - socket.stuck_since >= limits.stuck_seconds:
            self.close(CloseCode.TOO_SLOW)

    # What the gateway answers itself

    async def _local(self, frame: Frame, payload: frontend.Payload) -> None:
        answer = functools.partial(self.asking.answered, frame.id, frame.action)
        remotes, trace = self._parts.remotes, frame.traceparent
        match payload:
            case frontend.RemoteConnect():
                answer(await remotes.connect(self, payload, trace))
            case frontend.RemoteCallProgress():
                await self._calls.progress(payload)
                if frame.id is not None:
                    answer({})
            case frontend.OfCall():
                told = await self._calls.cancel(payload.requestId, frame.id is not None)
                if frame.id is not None:
                    answer(told)
            case frontend.OfRemote():
                answer(await remotes.disconnect(self, payload, trace))
            case frontend.Empty():
                answer(await remotes.listed(self, trace))
            case _:
                await self._follow(payload, answer)

    async def _follow(self, payload: frontend.Payload, answer: Callable[[dict[str, Any]], None]) -> None:
        if self._subscriptions is None:
            most = self._parts.config.limits.subscriptions
            self._subscriptions = Subscriptions(self._parts.broadcaster, self.socket, self.close, most)
        await self._subscriptions.asked(self.user, payload, answer)

    # The end

    def has_room(self) -> None:
        """The viewer has read some of what waited."""
        if self._subscriptions is not None:
            self._subscriptions.has_room()

    def flooded(self) -> None:
        """More answers wait than may."""
        self.close(CloseCode.TOO_SLOW)

    def close(self, code: CloseCode, retry_after_ms: int | None = None) -> None:
        """Close the socket, without waiting for anything."""
        if not self.socket.open:
            return
        metrics.CLOSED.labels(code=code.name).inc()
        log.info("a socket is closed", code=int(code), why=code.meaning, user=self.user, connection=self.id)
        wait = retry_after_ms if retry_after_ms is not None else self._house.jitter_ms()
        self._unfollow()
        self._house.closing(self)
        self.socket.end(code, reason(code, wait), self._parts.config.limits.close_seconds)

    def _unfollow(self) -> None:
        if self._subscriptions is not None:
            self._subscriptions.end()

    def _gone(self) -> None:
        self._unfollow()
        if self._calling is not None:
            self._calling.closed()
        self.socket.reader = None
        self._house.left(self)
