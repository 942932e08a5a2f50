"""Requests of the daemon's on the agent socket: each is answered once, on whatever socket is up by then.

The reader calls `asked` and does not wait. What a request means is its handler's business, which hears of it at once,
in order with the events around it, and gives the answer, or what will give it, or None where `reply` will bring it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple

import structlog
from tieline_protocol import agentctl, tracing
from tieline_protocol.errors import Refused, TielineError, Unavailable

from tieline_streams.replies import Replies

log = structlog.get_logger()

_AT_ONCE = 256
_AGAIN = 0.2  # s until a daemon that does not read is tried again
_GRACE = 0.5


class Asked(NamedTuple):
    """A request of the daemon's."""

    id: str
    action: str
    payload: dict[str, Any]
    traceparent: str | None = None


Answer = dict[str, Any]
McpHandler = Callable[[Asked], Answer | Coroutine[Any, Any, Answer] | None]


def _trace(envelope: dict[str, Any]) -> str | None:
    metadata = envelope.get("metadata")
    trace = metadata.get("traceparent") if isinstance(metadata, dict) else None
    return trace if isinstance(trace, str) and tracing.trace_id(trace) else None


class ReverseRequests:
    """Of one instance. `send` writes to the agent socket that is up, or raises Unavailable, Refused (busy)."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._replies = Replies()
        self._tasks: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None

    def asked(self, envelope: dict[str, Any], handler: McpHandler) -> None:
        """A request came."""
        id, action, payload = envelope.get("id"), envelope.get("action"), envelope.get("payload")
        if not isinstance(id, str) or not id or not isinstance(action, str):
            return
        if not self._replies.begin(id, self._loop.time()):
            log.info("a daemon's request came again", action=action)
            self._flush()
        elif len(self._tasks) >= _AT_ONCE:
            self._put(id, action, agentctl.error(id, action, "INTERNAL_ERROR", "too many requests at once"))
        else:
            given = payload if isinstance(payload, dict) else {}
            self._handle(Asked(id, action, given, _trace(envelope)), handler)

    def _handle(self, asked: Asked, handler: McpHandler) -> None:
        with self._refusing(asked):
            answer = handler(asked)
            if isinstance(answer, dict):
                self.reply(asked.id, asked.action, answer)
            elif answer is not None:
                task = asyncio.create_task(self._answer(asked, answer), name=f"answer {asked.action}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _answer(self, asked: Asked, work: Coroutine[Any, Any, Answer]) -> None:
        with self._refusing(asked):
            self.reply(asked.id, asked.action, await work)

    @contextlib.contextmanager
    def _refusing(self, asked: Asked) -> Iterator[None]:
        """The daemon gets an answer whatever is broken here."""
        try:
            yield
        except TielineError as exc:
            self._refuse(asked, exc.code.upper(), exc.message)
        except Exception:
            log.exception("a daemon's request could not be handled", action=asked.action)
            self._refuse(asked, "INTERNAL_ERROR", "the request could not be handled")

    def _refuse(self, asked: Asked, code: str, message: str) -> None:
        self._put(asked.id, asked.action, agentctl.error(asked.id, asked.action, code, message))

    def adopt(self, id: str) -> None:
        """A request that an earlier owner was asked, and that still waits for its reply."""
        self._replies.begin(id, self._loop.time())

    def reply(self, id: str, action: str, payload: dict[str, Any]) -> None:
        """The answer to a request. Raises BadMessage for what JSON cannot say."""
        self._put(id, action, agentctl.response(id, action, payload))

    def _put(self, id: str, action: str, frame: bytes) -> None:
        if not self._replies.put(id, frame):
            log.warning("a daemon does not take its replies", action=action, bytes=len(frame))
            self._replies.put(
                id, agentctl.error(id, action, "INTERNAL_ERROR", "too many replies are waiting")
            )
        self._flush()

    def connected(self) -> None:
        """A new agent socket is up."""
        self._replies.connected(self._loop.time())
        self._flush()

    def _flush(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        while (frame := self._replies.next()) is not None:
            try:
                self._send(frame)
            except Unavailable:
                return  # the next socket gets it
            except Refused:
                self._retry = self._loop.call_later(_AGAIN, self._flush)
                return
            self._replies.sent(self._loop.time())

    async def close(self) -> None:
        """Nothing new is asked: let what is under way be answered, but not for long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_GRACE)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._flush()
        if self._retry is not None:
            self._retry.cancel()
