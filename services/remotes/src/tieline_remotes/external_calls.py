"""The calls of external remotes that are under way: a task each, cancelled when nobody waits any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from urllib.parse import urlsplit

from tieline_protocol import calling, tracing
from tieline_protocol.errors import TielineError
from tieline_protocol.messages import refusal
from tieline_protocol.remotes import External

from tieline_remotes.calls import Call
from tieline_remotes.external import Externals


class Answered(Protocol):
    """A call has come to an end out there: the final for whoever waits, the size of a result, which kind of end."""

    def __call__(self, call: Call, final: bytes, size: int, outcome: str) -> Awaitable[None]: ...


class ExternalCalls:
    """By requestId. `group` owns the tasks."""

    def __init__(
        self,
        externals: Externals,
        group: asyncio.TaskGroup,
        answered: Answered,
        progressed: Callable[[Call, dict[str, Any]], Awaitable[None]],
    ) -> None:
        self._externals = externals
        self._group = group
        self._answered = answered
        self._progressed = progressed
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(
        self,
        call: Call,
        request_id: str,
        external: External,
        function: str,
        args: dict[str, Any],
        traceparent: str | None,
    ) -> None:
        """Make a call; its end is told to `answered`."""
        work = self._call(call, request_id, external, function, args, traceparent)
        task = self._group.create_task(work, name=f"external call {request_id}")
        self._tasks[request_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(request_id, None))

    def cancel(self, request_id: str) -> None:
        """Nobody waits any more. One that is over is left alone."""
        if task := self._tasks.get(request_id):
            task.cancel()

    async def _call(
        self,
        call: Call,
        request_id: str,
        external: External,
        function: str,
        args: dict[str, Any],
        traceparent: str | None,
    ) -> None:
        async def progress(told: dict[str, Any]) -> None:
            await self._progressed(call, told)

        attributes = {"server.address": urlsplit(external.url).hostname, "tieline.remote.kind": external.kind}
        try:
            with tracing.begin(f"call {external.kind}", "client", attributes, parent=traceparent):
                raw = await self._externals.call(external, request_id, function, args, progress)
        except TielineError as exc:
            await self._answered(call, refusal(exc), 0, "error")
        else:
            await self._answered(call, calling.result(raw), len(raw), "answered")
