"""One connection of the agent stream: events out, requests in, each handled by itself.

Everything goes out through `_send`, one frame at a time. An event leaves the queue only after it was written, so
what a broken or replaced connection could not take is the first thing that the next one gets.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

from tieline_agentctl import envelope, tracing
from tieline_agentctl.envelope import BadFrame, Envelope, RequestFailed
from tieline_agentctl.event_queue import EventQueue
from tieline_agentctl.mcp_tunnel import McpTunnel
from tieline_agentctl.scope import Scope

log = structlog.get_logger()

MOST_REQUESTS = 256
REPLACED = (4001, "a newer connection has this stream")  # a code of ours
GOING_AWAY = (1001, "the instance ends")
_CLOSE_PATIENCE = 1.0


class AgentStream:
    """Serves an accepted WebSocket until it breaks or `give_way` is called."""

    def __init__(
        self,
        websocket: WebSocket,
        events: EventQueue,
        tunnel: McpTunnel,
        carry_out: Callable[[Envelope], Awaitable[dict[str, Any]]],
        timestamp: Callable[[], str],
    ) -> None:
        self._websocket = websocket
        self._events = events
        self._tunnel = tunnel
        self._carry_out = carry_out
        self._timestamp = timestamp
        self._scope = Scope()
        self._sending = asyncio.Lock()
        self._over = asyncio.Event()
        self._farewell: tuple[int, str] | None = None
        self._requests = 0

    async def serve(self) -> None:
        """Returns when the connection is over; its requests in flight are cancelled, its prompts are not."""
        try:
            self._scope.spawn(self._read(), "agent stream reader")
            self._scope.spawn(self._write_events(), "agent stream writer")
            await self._over.wait()
        finally:
            await self._scope.close()
        if self._farewell is not None:
            await self._close(*self._farewell)

    async def give_way(self, code: int, reason: str) -> None:
        """Somebody else takes the stream, or nobody: nothing is written here after this returns but the close."""
        self._farewell = (code, reason)
        await self._scope.close()
        self._over.set()

    async def _close(self, code: int, reason: str) -> None:
        try:
            async with asyncio.timeout(_CLOSE_PATIENCE):
                await self._websocket.close(code, reason)
        except (WebSocketDisconnect, RuntimeError, TimeoutError):
            pass  # it is gone, or does not read: the server drops it

    async def _write_events(self) -> None:
        try:
            while True:
                frame = await self._events.head()
                await self._send(frame)
                self._events.pop()
        except WebSocketDisconnect:
            self._over.set()

    async def _send(self, frame: bytes) -> None:
        async with self._sending:
            try:
                await self._websocket.send({"type": "websocket.send", "text": frame.decode()})
            except RuntimeError as error:
                # The server's word for a connection that it has closed by itself, after a broken frame.
                raise WebSocketDisconnect(1006) from error

    async def _read(self) -> None:
        try:
            while (message := await self._websocket.receive())["type"] == "websocket.receive":
                text = message.get("text")
                if text is None:
                    log.warning("a binary frame on the agent stream is ignored")
                    continue
                self._received(text)
        finally:
            self._over.set()

    def _received(self, text: str) -> None:
        try:
            frame = envelope.decode(text)
        except BadFrame as error:
            log.warning("a frame on the agent stream is dropped", error=str(error), characters=len(text))
            return
        if frame.type == "request":
            self._scope.spawn(self._answer(frame), f"request {frame.action}")
        elif frame.type in ("response", "error"):
            self._tunnel.answered(frame)

    async def _answer(self, asked: Envelope) -> None:
        try:
            await self._send(await self._reply(asked))
        except WebSocketDisconnect:
            log.info("an answer found its connection gone", action=asked.action)

    async def _reply(self, asked: Envelope) -> bytes:
        if self._requests >= MOST_REQUESTS:
            failure = RequestFailed(
                envelope.INTERNAL_ERROR, f"{MOST_REQUESTS} requests are under way already"
            )
            return envelope.error(asked, failure, self._timestamp())
        self._requests += 1
        try:
            with tracing.work(asked.action, "server", asked.traceparent, _rpc(asked)):
                payload = await self._carry_out(asked)
        except RequestFailed as failure:
            return envelope.error(asked, failure, self._timestamp())
        except Exception as error:  # the one border where a mistake of ours becomes an answer
            log.error("a request failed by a mistake of ours", action=asked.action, exc_info=error)
            mistake = RequestFailed(envelope.INTERNAL_ERROR, f"{type(error).__name__}: {error}")
            return envelope.error(asked, mistake, self._timestamp())
        finally:
            self._requests -= 1
        return envelope.response(asked, payload, self._timestamp())


def _rpc(asked: Envelope) -> dict[str, str]:
    return {"rpc.system": "agentctl", "rpc.method": asked.action}
