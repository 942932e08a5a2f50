"""The requests of one connection that are under way: concurrently under a cap, shell input in its order."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from tieline_protocol import frontend, logs, tracing
from tieline_protocol.errors import Code, Refused, TielineError
from tieline_protocol.frontend import Action, Frame, FrameId, Payload, Route

from tieline_gateway import metrics
from tieline_gateway.ordered import Item, OrderedRequests, Outcome
from tieline_gateway.parts import Parts
from tieline_gateway.sockets import Socket

log = structlog.get_logger()

Local = Callable[[Frame, Payload], Awaitable[None]]


class Asking:
    """Requests by their id. Work goes on when the socket closes; only the answer is dropped then."""

    __slots__ = ("_bytes", "_concurrent", "_local", "_ordered", "_parts", "_pending", "_socket")

    def __init__(self, parts: Parts, socket: Socket, local: Local) -> None:
        self._parts = parts
        self._socket = socket
        self._local = local
        self._pending: set[FrameId] = set()
        self._concurrent = self._bytes = 0  # ordered ones have a bound of their own
        self._ordered: OrderedRequests | None = None

    def begin(self, id: FrameId) -> None:
        """A request that is answered elsewhere, by `answered` or `refused`."""
        self._pending.add(id)

    def __bool__(self) -> bool:
        return bool(self._pending)

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, id: FrameId) -> bool:
        return id in self._pending

    async def put(self, user: str, frame: Frame, action: Action, payload: Payload, size: int) -> None:
        """Begin a request. Raises Refused (busy). Waits only where too much shell input waits."""
        if action.ordered:
            self._pending.add(frame.id)
            await self._in_order(user, frame, action, payload, size)
            return
        limits = self._parts.config.limits
        if self._concurrent >= limits.in_flight or (
            self._concurrent and self._bytes + size > limits.in_flight_bytes
        ):
            raise Refused(Code.BUSY, "too many requests at once on this connection")
        self._pending.add(frame.id)
        self._concurrent += 1
        self._bytes += size
        self._parts.start(self._answer(user, frame, action, payload, size), f"{action.name} of {user:.40}")

    async def _answer(self, user: str, frame: Frame, action: Action, payload: Payload, size: int) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        about = _about(payload)
        logs.about(user=user, **about)
        attributes = {"user.id": user, **{f"tieline.{name}.id": value for name, value in about.items()}}
        try:
            with tracing.begin(action.name, "server", attributes, parent=frame.traceparent) as span:
                frame = frame._replace(traceparent=span.traceparent)
                if action.route is Route.GATEWAY:
                    async with asyncio.timeout(action.seconds):
                        await self._local(frame, payload)
                else:
                    reply = await self._send(user, frame, action, payload.given())
                    self.answered(frame.id, action.name, reply)
        except TimeoutError:
            self.refused(frame.id, frame.action, Refused(Code.UNAVAILABLE, "what is needed for this is away"))
        except TielineError as exc:
            self.refused(frame.id, frame.action, exc)
        except Exception:  # the last line: a client always gets an answer, and nobody else is disturbed
            log.exception("a request could not be handled", action=action.name, user=user)
            self.refused(frame.id, frame.action, TielineError("something went wrong here"))
        finally:
            self._concurrent -= 1
            self._bytes -= size
            metrics.SECONDS.labels(action=action.name).observe(loop.time() - began)

    async def _send(self, user: str, frame: Frame, action: Action, payload: dict[str, Any]) -> bytes:
        requests = self._parts.requests
        if action.name in ("agent.prompt", "thread.message"):
            # It may be sent again to a new owner, who knows it by this.
            payload.setdefault("client_message_id", secrets.token_urlsafe(12))
        return await requests.send(action, requests.make(action, user, payload, frame.traceparent))

    async def _in_order(self, user: str, frame: Frame, action: Action, payload: Payload, size: int) -> None:
        requests, limits = self._parts.requests, self._parts.config.limits
        if self._ordered is None:
            self._ordered = OrderedRequests(
                requests.attempt,
                requests.send,
                self._ordered_done,
                self._parts.start,
                limits.ordered,
                limits.in_flight_bytes,
            )
        request = requests.make(action, user, payload.given(), frame.traceparent)
        await self._ordered.put(Item(frame.id, action, request, size))

    def _ordered_done(self, item: Item, outcome: Outcome) -> None:
        if isinstance(outcome, bytes):
            self.answered(item.id, item.action.name, outcome)
        else:
            self.refused(item.id, item.action.name, outcome)

    def answered(self, id: FrameId, action: str, payload: dict[str, Any] | bytes) -> None:
        """Answer a request. Its id is free before the answer is written, since it may be used again at once."""
        self._pending.discard(id)
        metrics.answered(action).inc()
        self._socket.answer(frontend.response(id, action, payload))

    def refused(self, id: FrameId, action: str, problem: TielineError) -> None:
        """Answer a request with an error."""
        self._pending.discard(id)
        refuse(self._socket, id, action, problem)


def _about(payload: Payload) -> dict[str, str]:
    """The session or thread of a request."""
    named = {name: getattr(payload, f"{name}_id", None) for name in ("session", "thread")}
    return {name: value for name, value in named.items() if isinstance(value, str)}


def refuse(socket: Socket, id: FrameId, action: str | None, problem: TielineError) -> None:
    """Say no to a frame, whether or not it became a request."""
    name = action if action in frontend.ACTIONS else ""
    metrics.REQUESTS.labels(action=name, outcome=problem.code).inc()
    socket.answer(frontend.error(id, action, problem))
