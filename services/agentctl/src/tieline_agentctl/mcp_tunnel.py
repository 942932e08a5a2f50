"""Requests that go the other way: from the agent's MCP tools, over the agent stream, to the backend.

They travel in the same queue as events, so they wait while no backend is connected. A reply may come over
any later stream; there is no time limit of ours, whoever asks bounds its own patience and may be cancelled.
"""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

from tieline_agentctl import envelope
from tieline_agentctl.event_queue import EventQueue

SEND_PATIENCE = 5.0


class McpFailed(Exception):
    """The backend refused, or nobody will answer any more."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"[{code}]: {message}" if code else message)
        self.code = code
        self.message = message


class McpTunnel:
    """The requests under way, by id."""

    def __init__(self, events: EventQueue, timestamp: Callable[[], str]) -> None:
        self._events = events
        self._timestamp = timestamp
        self._pending: dict[str, asyncio.Future[Any]] = {}

    async def request(self, action: str, payload: Any, traceparent: str | None = None) -> Any:
        """The payload of the backend's response; McpFailed. `traceparent`: what it is a part of."""
        try:
            async with asyncio.timeout(SEND_PATIENCE):
                await self._events.room()
        except TimeoutError:
            raise McpFailed("", "timeout sending request to agent stream") from None
        id = str(uuid.uuid4())
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[id] = answer
        frame = envelope.request(id, action, payload, self._timestamp(), traceparent)
        self._events.put(frame)
        try:
            return await answer
        finally:
            # Whoever gave up before a backend came must not have its request carried out later.
            self._events.withdraw(frame)
            del self._pending[id]

    def answered(self, reply: envelope.Envelope) -> None:
        """A response or an error came; one that nobody waits for is dropped."""
        answer = self._pending.get(reply.id)
        if answer is None or answer.done():
            return
        if reply.type == "response":
            answer.set_result(reply.payload)
            return
        payload = reply.payload if isinstance(reply.payload, dict) else {}
        code, message = payload.get("code"), payload.get("message")
        answer.set_exception(
            McpFailed(
                code if isinstance(code, str) else envelope.INTERNAL_ERROR,
                message if isinstance(message, str) else "no details",
            )
        )

    def fail_all(self, reason: str) -> None:
        """Nobody will answer what is under way."""
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(McpFailed("", reason))
