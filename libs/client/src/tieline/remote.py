"""Remotes: functions of this program that an AI agent may call.

    browser = Remote("browser")

    @browser.function
    async def open_tab(url: str, call: Call) -> str:
        "Open a page.  url: its address"
        await call.progress("loading")
        return "opened"

    async with client.serve(browser):
        ...

A plain function runs in a thread. A call that is cancelled, or whose time is up, cancels an async function; a plain
one looks at `call.cancelled`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tieline import signature
from tieline.errors import TielineError
from tieline.signature import Signature

F = TypeVar("F", bound=Callable[..., Any])

Progress = Callable[[dict[str, Any]], Awaitable[None]]


class Call:
    """One call, as its function sees it. `deadline_ms` is how long whoever asked waits, from its arrival."""

    def __init__(
        self, request_id: str, deadline_ms: int, send: Progress, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.request_id = request_id
        self.deadline_ms = deadline_ms
        self.cancelled = False
        self._send = send
        self._loop = loop

    async def progress(
        self, message: str | None = None, progress: float | None = None, total: float | None = None
    ) -> None:
        """Tell whoever waits how far this is."""
        facts = {"message": message, "progress": progress, "total": total}
        known = {name: value for name, value in facts.items() if value is not None}
        await self._send({"requestId": self.request_id, **known})

    def progress_from_thread(
        self, message: str | None = None, progress: float | None = None, total: float | None = None
    ) -> None:
        """The same for a plain function, which runs in a thread."""
        asyncio.run_coroutine_threadsafe(self.progress(message, progress, total), self._loop).result(10)


class Remote:
    """A named collection of functions. Serve it with `Client.serve`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._functions: dict[str, tuple[Callable[..., Any], Signature]] = {}

    def function(self, function: F | None = None, *, name: str | None = None) -> Any:
        """Decorator: expose a function. Its schema comes from its type hints and docstring."""
        if function is None:
            return lambda decorated: self.function(decorated, name=name)
        read = signature.of(function, Call, name)
        if read.name in self._functions:
            raise ValueError(f"the remote {self.name!r} has a function {read.name!r} already")
        self._functions[read.name] = (function, read)
        return function

    def registered(self) -> list[dict[str, Any]]:
        """The functions as `remote-connect` takes them."""
        return [read.as_registered() for _, read in self._functions.values()]

    async def run(self, function: str, args: Any, call: Call) -> Any:
        """Run one call. Raises TielineError for what cannot be called so, and whatever the function raises."""
        if function not in self._functions:
            raise TielineError("not_found", f"the remote {self.name!r} has no function {function!r}")
        run, read = self._functions[function]
        arguments = read.arguments(args)
        if read.context is not None:
            arguments[read.context] = call
        if inspect.iscoroutinefunction(run):
            return await run(**arguments)
        return await asyncio.to_thread(run, **arguments)
