"""Operations of minutes (git push, pull, rebase, merge, commit): an answer at once where it is quick, else events."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from tieline_protocol import jsontext
from tieline_protocol.errors import Code, Refused, TielineError

log = structlog.get_logger()

_AT_ONCE = 32


class Operations:
    """What runs for a session. `say` publishes an event of the workspace log."""

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        self._say = say
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    async def run(self, action: str, work: Callable[[], Awaitable[bytes]], answer_within: float) -> bytes:
        """The result, or `{operation_id}` while it goes on. It goes on also when nobody waits any more."""
        if len(self._running) >= _AT_ONCE:
            raise Refused(Code.BUSY, f"{_AT_ONCE} operations are running already")
        id = f"o{secrets.token_urlsafe(16)}"
        result: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        told = asyncio.Event()
        task = asyncio.create_task(self._do(id, action, work, result, told), name=f"operation {action}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            await asyncio.wait([result], timeout=answer_within)
        finally:
            if not result.done():
                told.set()
                self._say({"type": "operation", "operation_id": id, "action": action, "state": "running"})
        if result.done():
            return result.result()
        return jsontext.dumps({"operation_id": id})

    async def _do(
        self,
        id: str,
        action: str,
        work: Callable[[], Awaitable[bytes]],
        result: asyncio.Future[bytes],
        told: asyncio.Event,
    ) -> None:
        try:
            body = await work()
        except asyncio.CancelledError:
            exc: TielineError = Refused(Code.CANCELLED, "the session ended")
            self._done(id, action, told, {"error": _shown(exc)})
            result.cancel()
            raise
        except TielineError as refused:
            self._done(id, action, told, {"error": _shown(refused)})
            if not told.is_set():
                result.set_exception(refused)
            else:
                result.cancel()
            return
        self._done(id, action, told, {"result": jsontext.loads(body)})
        result.set_result(body)

    def _done(self, id: str, action: str, told: asyncio.Event, outcome: dict[str, Any]) -> None:
        if told.is_set():
            event = {"type": "operation", "operation_id": id, "action": action, "state": "done", **outcome}
            self._say(event)

    def lost(self, running: list[dict[str, Any]]) -> None:
        """What an earlier owner waited for: whether it was done is not known any more."""
        error = {
            "code": Code.UNAVAILABLE,
            "message": "nobody waited for the end of it; it may have been done",
        }
        for event in running:
            self._say({**event, "state": "done", "error": error})

    async def close(self) -> None:
        """Stop waiting for what runs; each is told as done."""
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


def _shown(exc: TielineError) -> dict[str, Any]:
    return {"code": exc.code, "message": exc.message}
