"""Serving remotes: which are exposed, and the calls that reach them, each a task, bounded, cancelled when told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from pydantic_core import to_jsonable_python

from tieline import tracing
from tieline.errors import Disconnected, TielineError
from tieline.frames import Frame
from tieline.remote import Call, Remote

MAX_CALLS = 256  # at once; above it a call is answered with `busy`

Notify = Callable[[str, dict[str, Any]], Awaitable[None]]


class Served:
    """A remote while it is exposed. `refused` says which functions were not taken, and why."""

    def __init__(self, remote: Remote, external: dict[str, Any] | None) -> None:
        self.remote = remote
        self.functions: list[str] = []
        self.refused: list[dict[str, str]] = []
        self.replaced = asyncio.Event()
        self.error: TielineError | None = None
        self._external = external

    def _registration(self) -> dict[str, Any]:
        external = {} if self._external is None else {"external": self._external}
        return {"remotename": self.remote.name, "functions": self.remote.registered(), **external}

    def _registered(self, answer: dict[str, Any]) -> None:
        self.functions = list(answer.get("functions", []))
        self.refused = list(answer.get("refused", []))
        self.error = None

    def _refused(self, error: TielineError) -> None:
        self.error = error


class Calls:
    """The calls under way in this client."""

    def __init__(self, notify: Notify, limit: Callable[[], int]) -> None:
        self._notify = notify
        self._limit = limit
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._calls: dict[str, Call] = {}

    def called(self, served: Served | None, payload: dict[str, Any], traceparent: str | None = None) -> None:
        """A call has come, as a part of that trace."""
        request_id = str(payload.get("requestId", ""))
        if request_id in self._tasks:
            return
        loop = asyncio.get_running_loop()
        call = Call(request_id, int(payload.get("deadline_ms", 0)), self._progress, loop)
        task = asyncio.create_task(
            self._answer(served, payload, call, traceparent), name=f"remote call {request_id}"
        )
        self._tasks[request_id] = task
        self._calls[request_id] = call
        task.add_done_callback(lambda _: self._done(request_id))

    def _done(self, request_id: str) -> None:
        self._tasks.pop(request_id, None)
        self._calls.pop(request_id, None)

    def cancelled(self, request_id: str) -> None:
        """Nobody waits for a call any more."""
        if call := self._calls.get(request_id):
            call.cancelled = True
            self._tasks[request_id].cancel()

    def lost(self) -> None:
        """The connection is gone, and with it everybody who waited."""
        for request_id in list(self._tasks):
            self.cancelled(request_id)

    async def end(self) -> None:
        tasks = list(self._tasks.values())
        self.lost()
        if tasks:
            await asyncio.wait(tasks)

    async def _progress(self, payload: dict[str, Any]) -> None:
        try:
            await self._notify("remote-call-progress", payload)
        except Disconnected:
            pass  # the call is cancelled in a moment

    async def _answer(
        self, served: Served | None, payload: dict[str, Any], call: Call, traceparent: str | None
    ) -> None:
        with tracing.within(traceparent):
            told = await self._run(served, payload, call)
        try:
            await self._notify("remote-call-result", {"requestId": call.request_id, **told})
        except Disconnected:
            pass  # whoever waited has been told so

    async def _run(self, served: Served | None, payload: dict[str, Any], call: Call) -> dict[str, Any]:
        try:
            if served is None:
                raise TielineError("not_found", "that remote is not served here any more")
            if len(self._tasks) > MAX_CALLS:
                raise TielineError("busy", f"{MAX_CALLS} calls are under way here")
            result = await served.remote.run(str(payload.get("function")), payload.get("args", {}), call)
            return {"result": self._fitting(result)}
        except TielineError as exc:
            return {"error": exc.message, "code": exc.code}
        except Exception as exc:  # noqa: BLE001  # whatever the function raised is the call's outcome
            return {"error": f"{type(exc).__name__}: {exc}"[:4_000], "code": "internal"}

    def _fitting(self, result: Any) -> Any:
        try:
            plain = to_jsonable_python(result, inf_nan_mode="constants")
            size = len(orjson.dumps(plain))
        except (TypeError, ValueError, RecursionError) as exc:
            raise TielineError("internal", f"the result cannot be told as JSON: {exc}"[:1_000]) from exc
        if _holds_nonfinite(plain):
            raise TielineError("internal", "the result holds NaN or Infinity, which JSON cannot tell")
        if size > self._limit():
            raise TielineError(
                "too_large", f"the result has {size:,} bytes, at most {self._limit():,} are taken"
            )
        return plain


class Serving:
    """The remotes that a client exposes, by name, and the calls that reach them."""

    def __init__(self, notify: Notify, limit: Callable[[], int]) -> None:
        self._served: dict[str, Served] = {}
        self.calls = Calls(notify, limit)

    @property
    def wanted(self) -> list[Served]:
        """Those that nobody has taken over."""
        return [served for served in self._served.values() if not served.replaced.is_set()]

    def add(self, remote: Remote, external: dict[str, Any] | None) -> Served:
        """Raises TielineError (conflict)."""
        if remote.name in self._served:
            raise TielineError("conflict", f"this client serves {remote.name!r} already")
        served = self._served[remote.name] = Served(remote, external)
        return served

    def remove(self, served: Served) -> None:
        """It is not exposed any more; calls under way go on to their ends."""
        self._served.pop(served.remote.name, None)

    def heard(self, frame: Frame) -> bool:
        """Something came. Whether it was about these."""
        payload = frame.payload
        match frame.action:
            case "remote-call":
                served = self._served.get(payload.get("remotename", ""))
                self.calls.called(served, payload, frame.traceparent)
            case "remote-call-cancel":
                self.calls.cancelled(payload.get("requestId", ""))
            case "remote-replaced":
                if served := self._served.get(payload.get("remotename", "")):
                    served.replaced.set()
            case _:
                return False
        return True

    def lost(self) -> None:
        """The connection is gone."""
        self.calls.lost()

    async def end(self) -> None:
        """Cancel what is under way."""
        await self.calls.end()


def _holds_nonfinite(value: Any) -> bool:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, float) and (item != item or item in (float("inf"), float("-inf"))):
            return True
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return False
