"""One frontend connection: its frames understood, its requests under way, what it follows, until when it may.

Requests run concurrently under a cap; shell input keeps its order. Work goes on when the socket closes: only the
answer is dropped then.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any

import structlog
from tieline_protocol import frontend
from tieline_protocol.errors import Code, Refused, TielineError, Unavailable
from tieline_protocol.frontend import Action, Frame, Route
from websockets.exceptions import ConnectionClosed

from tieline_gateway import metrics
from tieline_gateway.access import Identity, identify
from tieline_gateway.broadcaster import Joined
from tieline_gateway.close_codes import CloseCode, reason
from tieline_gateway.joining import Follow
from tieline_gateway.ordered import Item, Ordered, Outcome
from tieline_gateway.sockets import Socket

if TYPE_CHECKING:
    from tieline_gateway.gateway import Gateway

log = structlog.get_logger()

_LOGS = ("agent", "workspace")


class Viewer:
    """A socket and who is behind it."""

    __slots__ = (
        "_follows",
        "_lock",
        "_ordered",
        "_ordered_room",
        "_ordered_waiting",
        "_pending",
        "_pending_bytes",
        "auth_until",
        "ended",
        "expires",
        "gateway",
        "id",
        "socket",
        "user",
    )

    def __init__(self, gateway: Gateway, socket: Socket, now: float) -> None:
        self.gateway = gateway
        self.socket = socket
        self.id = secrets.token_urlsafe(12)
        self.user = ""
        self.expires = 0.0  # Unix seconds; 0 before a token came
        self.auth_until = now + gateway.config.limits.auth_seconds
        self.ended = False
        self._pending: dict[frontend.FrameId, int] | None = None
        self._pending_bytes = 0
        self._follows: dict[tuple[str, str], Follow] | None = None
        self._ordered: dict[str, Ordered] | None = None
        self._ordered_waiting = 0
        self._ordered_room: asyncio.Future[None] | None = None
        self._lock: asyncio.Lock | None = None
        socket.prepare(gateway.config.limits, self)

    @property
    def busy(self) -> bool:
        """Whether answers are awaited."""
        return bool(self._pending)

    async def run(self) -> None:
        """Serve the socket until it closes."""
        try:
            if (token := self.socket.token) is not None:
                self.socket.token = None
                if not await self._enter_by_subprotocol(token):
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
            frame = frontend.parse(message)
        except frontend.BadFrame as exc:
            self.socket.answer(frontend.error(exc.id, exc.action, exc))
            metrics.REQUESTS.labels(action="", outcome=exc.code).inc()
            return
        if frame.kind != "request":
            return  # nothing that we asked a frontend is open
        try:
            await self._request(frame, len(message))
        except TielineError as exc:
            self._refuse(frame, exc)

    async def _request(self, frame: Frame, size: int) -> None:
        limits = self.gateway.config.limits
        if self._pending is not None and frame.id in self._pending:
            raise Refused(Code.CONFLICT, "a request with this id is still under way")
        if not self.user and frame.action != "auth":
            raise Refused(Code.UNAUTHORIZED, "the first frame must be auth")
        action = frontend.action(frame.action)
        payload = frontend.payload(action, frame.payload)
        if isinstance(payload, frontend.Auth):
            await self._auth(frame, payload)
            return
        if action.ordered:
            await self._in_order(frame, action, payload.given(), size)
            return
        pending = self._pending if self._pending is not None else {}
        if len(pending) >= limits.in_flight or (
            pending and self._pending_bytes + size > limits.in_flight_bytes
        ):
            raise Refused(Code.BUSY, "too many requests at once on this connection")
        self._pending = pending
        self._add(frame.id, size)
        self.gateway.start(self._answer(frame, action, payload, size), f"{action.name} {self.id}")

    async def _answer(self, frame: Frame, action: Action, payload: frontend.Payload, size: int) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            if action.route is Route.GATEWAY:
                async with asyncio.timeout(action.seconds):
                    await self._local(frame, payload)
            else:
                body = await self._send(frame, action, payload.given())
                self._done(frame.id, size)
                self.socket.answer(frontend.response(frame.id, frame.action, body))
                metrics.REQUESTS.labels(action=action.name, outcome="ok").inc()
        except TimeoutError:
            self._refuse(frame, Refused(Code.UNAVAILABLE, "what is needed for this is away"), size)
        except TielineError as exc:
            self._refuse(frame, exc, size)
        except Exception:  # the last line: a client always gets an answer, and nobody else is disturbed
            log.exception("a request could not be handled", action=action.name, user=self.user)
            self._refuse(frame, Refused(Code.INTERNAL, "something went wrong here"), size)
        finally:
            self._done(frame.id, size)
            metrics.SECONDS.labels(action=action.name).observe(loop.time() - began)

    async def _send(self, frame: Frame, action: Action, payload: dict[str, Any]) -> bytes:
        requests = self.gateway.requests
        if action.name == "agent.prompt":
            # It may be sent again to a new owner, who knows it by this.
            payload.setdefault("client_message_id", secrets.token_urlsafe(12))
        request = requests.make(action, self.user, payload, frame.traceparent)
        return await requests.send(action, request)

    def _refuse(self, frame: Frame, exc: TielineError, size: int | None = None) -> None:
        if size is not None:
            self._done(frame.id, size)
        name = frame.action if frame.action in frontend.ACTIONS else ""
        metrics.REQUESTS.labels(action=name, outcome=exc.code).inc()
        self.socket.answer(frontend.error(frame.id, frame.action, exc))

    def _add(self, id: frontend.FrameId, size: int) -> None:
        assert self._pending is not None
        self._pending[id] = size
        self._pending_bytes += size

    def _done(self, id: frontend.FrameId, size: int) -> None:
        """An id may be used again once it is answered, so it is free before the answer is written."""
        if self._pending is not None and self._pending.get(id) == size:
            del self._pending[id]
            self._pending_bytes -= size

    # Ordered requests

    async def _in_order(self, frame: Frame, action: Action, payload: dict[str, Any], size: int) -> None:
        limits = self.gateway.config.limits
        requests = self.gateway.requests
        while self._ordered_waiting and (
            self._ordered_waiting >= limits.ordered or self._pending_bytes > limits.in_flight_bytes
        ):
            self._ordered_room = asyncio.get_running_loop().create_future()
            await self._ordered_room
        session = payload["session_id"]
        if self._ordered is None:
            self._ordered = {}
        lane = self._ordered.get(session)
        if lane is None:
            lane = self._ordered[session] = Ordered(requests.attempt, requests.send, self._ordered_done)
        if self._pending is None:
            self._pending = {}
        self._add(frame.id, size)
        self._ordered_waiting += 1
        request = requests.make(action, self.user, payload, frame.traceparent)
        if lane.put(Item(frame.id, action, request, size)):
            self.gateway.start(self._run_ordered(session, lane), f"{action.name} {self.id}")

    async def _run_ordered(self, session: str, lane: Ordered) -> None:
        await lane.run()
        if self._ordered is not None and self._ordered.get(session) is lane:
            del self._ordered[session]

    def _ordered_done(self, item: Item, outcome: Outcome) -> None:
        self._ordered_waiting -= 1
        if self._ordered_room is not None and not self._ordered_room.done():
            self._ordered_room.set_result(None)
        self._done(item.id, item.size)
        if isinstance(outcome, bytes):
            metrics.REQUESTS.labels(action=item.action.name, outcome="ok").inc()
            self.socket.answer(frontend.response(item.id, item.action.name, outcome))
        else:
            metrics.REQUESTS.labels(action=item.action.name, outcome=outcome.code).inc()
            self.socket.answer(frontend.error(item.id, item.action.name, outcome))

    # Identity

    async def _enter_by_subprotocol(self, token: str) -> bool:
        try:
            identity = identify(token, self.gateway.config.secret, time.time())
        except Refused:
            self.close(CloseCode.UNAUTHORIZED)
            return False
        try:
            await self._enter(identity)
        except Unavailable:
            self.close(CloseCode.UNAVAILABLE)
            return False
        self.socket.answer(frontend.notification("auth", self._welcome()))
        return True

    async def _auth(self, frame: Frame, payload: frontend.Auth) -> None:
        try:
            identity = identify(payload.token, self.gateway.config.secret, time.time())
            if self.user and identity.user != self.user:
                raise Refused(Code.UNAUTHORIZED, "this connection belongs to somebody else")
        except Refused as exc:
            self._refuse(frame, exc)
            if not self.user:
                self.close(CloseCode.UNAUTHORIZED)
            return
        if self.user:
            self.expires = identity.expires
        else:
            await self._enter(identity)
        metrics.REQUESTS.labels(action="auth", outcome="ok").inc()
        self.socket.answer(frontend.response(frame.id, frame.action, self._welcome()))

    async def _enter(self, identity: Identity) -> None:
        await self.gateway.users.entered(identity.user, self)
        self.user, self.expires = identity.user, identity.expires

    def _welcome(self) -> dict[str, Any]:
        limits = self.gateway.config.limits
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
        limits = self.gateway.config.limits
        if not self.user:
            if now >= self.auth_until:
                self.close(CloseCode.AUTH_TIMEOUT)
        elif wall >= self.expires:
            self.close(CloseCode.EXPIRED)
        elif socket.stuck_since is not None and now - socket.stuck_since >= limits.stuck_seconds:
            self.close(CloseCode.TOO_SLOW)

    # Following

    async def _local(self, frame: Frame, payload: frontend.Payload) -> None:
        self._lock = self._lock or asyncio.Lock()
        async with self._lock:  # joining and leaving keep the order in which they were asked for
            if isinstance(payload, frontend.SessionSubscribe):
                await self._subscribe(frame, payload)
            elif isinstance(payload, frontend.SessionUnsubscribe):
                for name in payload.logs or _LOGS:
                    self._leave((payload.session_id, name))
                self._answered(frame, {})

    def _answered(self, frame: Frame, payload: dict[str, Any]) -> None:
        if self._pending is not None and frame.id in self._pending:
            self._done(frame.id, self._pending[frame.id])
        metrics.REQUESTS.labels(action=frame.action, outcome="ok").inc()
        self.socket.answer(frontend.response(frame.id, frame.action, payload))

    async def _subscribe(self, frame: Frame, payload: frontend.SessionSubscribe) -> None:
        session, cursors = payload.session_id, payload.cursors or {}
        follows = self._follows if self._follows is not None else {}
        told: dict[str, Any] = {}
        wanted: dict[str, str | None] = {}
        names = tuple(dict.fromkeys(payload.logs or _LOGS))
        for name in names:
            follow = follows.get((session, name))
            cursor: str | None = cursors.get(name)  # type: ignore[call-overload]  # the keys are checked
            if follow is not None and cursor in (None, follow.asked):
                told[name] = {"cursor": str(follow.cursor), "reset": False}  # it is followed already
            else:
                wanted[name] = cursor
        if (
            len(follows.keys() | {(session, name) for name in wanted})
            > self.gateway.config.limits.subscriptions
        ):
            raise Refused(Code.TOO_LARGE, "too many logs are followed on this connection")
        joined = await self.gateway.broadcaster.join(self.user, session, wanted, self.socket, self.close)
        if self.ended or not self.socket.open:
            for one in joined.values():
                self.gateway.broadcaster.leave(one.follow)
            return
        self._follows = follows
        self._answered(
            frame,
            {"logs": {name: told.get(name) or _told(joined[name]) for name in names}},
        )
        for name, one in joined.items():
            one.follow.asked = cursors.get(name)  # type: ignore[call-overload]
            self._leave((session, name))
            follows[session, name] = one.follow
            one.follow.begin()

    def _leave(self, key: tuple[str, str]) -> None:
        if self._follows is not None and (follow := self._follows.pop(key, None)) is not None:
            self.gateway.broadcaster.leave(follow)

    # The end

    def has_room(self) -> None:
        """The viewer has read some of what waited."""
        for follow in list((self._follows or {}).values()):
            follow.has_room()

    def flooded(self) -> None:
        """More answers wait than may."""
        self.close(CloseCode.TOO_SLOW)

    def close(self, code: CloseCode, retry_after_ms: int | None = None) -> None:
        """Close the socket, without waiting for anything."""
        if not self.socket.open:
            return
        metrics.CLOSED.labels(code=code.name).inc()
        log.info("a socket is closed", code=int(code), why=code.meaning, user=self.user, connection=self.id)
        wait = retry_after_ms if retry_after_ms is not None else self.gateway.jitter_ms()
        self._unfollow()
        self.socket.end(code, reason(code, wait), self.gateway.config.limits.close_seconds)

    def _unfollow(self) -> None:
        for key in list(self._follows or ()):
            self._leave(key)

    def _gone(self) -> None:
        self.ended = True
        self._unfollow()
        self.socket.reader = None
        self.gateway.left(self)


def _told(joined: Joined) -> dict[str, Any]:
    return {"cursor": str(joined.cursor), "reset": joined.reset}
