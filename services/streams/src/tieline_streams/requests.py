"""Requests on the agent socket: each has an id of its own, a place in the table, and a deadline.

The reader calls `replied` itself, so a reply never waits behind the handling of events. A drop of the socket fails
everything that waits, at once.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

from tieline_protocol import agentctl, tracing
from tieline_protocol.errors import FateUnknown, TimedOut


class Requests:
    """What waits for a reply on one connection."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def request(self, action: str, payload: dict[str, Any] | None, timeout: float) -> dict[str, Any]:
        """Raises Refused (the daemon's no), Unavailable (not sent), FateUnknown (the socket dropped), TimedOut."""
        with tracing.part(f"agentctl {action}", "client", {"rpc.system": "agentctl", "rpc.method": action}):
            return await self._requested(action, payload, timeout)

    async def _requested(self, action: str, payload: dict[str, Any] | None, timeout: float) -> dict[str, Any]:
        id = str(uuid.uuid4())
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[id] = reply
        try:
            self._send(agentctl.request(id, action, payload, tracing.current()))
            async with asyncio.timeout(timeout):
                envelope = await reply
        except TimeoutError as exc:
            raise TimedOut(f"{action}: the daemon did not answer within {timeout:g} s") from exc
        finally:
            self._waiting.pop(id, None)
        return agentctl.payload(envelope)

    def replied(self, envelope: dict[str, Any]) -> bool:
        """A reply came. Returns whether anybody waited for it; if not, it is ignored."""
        id = envelope.get("id")
        reply = self._waiting.get(id) if isinstance(id, str) else None
        if reply is None or reply.done():
            return False
        reply.set_result(envelope)
        return True

    def dropped(self) -> None:
        """The socket is gone: nobody will answer."""
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(FateUnknown("the agent stream dropped while waiting for the answer"))
