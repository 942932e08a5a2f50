"""One service kept running: started, watched until ready, started again when it ends on its own, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tieline_ops import last_words
from tieline_ops.child import Child
from tieline_ops.restarts import Restarts

Say = Callable[[str, str], None]


class StartFailed(Exception):
    """A service did not become ready, and trying again will not help."""


class Keeper:
    """`spawn` starts the process (anew each time), `ready` waits until it answers and returns what it tells.

    `on_ready` is called at each readiness, `on_crash` after each end that nobody asked for.
    """

    def __init__(
        self,
        name: str,
        log: Path,
        spawn: Callable[[], Child],
        ready: Callable[[Child], Awaitable[dict[str, Any]]],
        say: Say,
        *,
        on_ready: Callable[[], None],
        on_crash: Callable[[], Awaitable[None]],
        ready_within: float = 30,
    ) -> None:
        self.name = name
        self.log = log
        self.facts: dict[str, Any] = {}
        self.child: Child | None = None
        self.first_ready = asyncio.Event()
        self._spawn = spawn
        self._ready = ready
        self._say = say
        self._on_ready = on_ready
        self._on_crash = on_crash
        self._ready_within = ready_within
        self._stopping = asyncio.Event()
        self._restarts = Restarts()

    async def run(self) -> None:
        """Keep it running until `stop`. Raises StartFailed."""
        while not self._stopping.is_set():
            wait = await self._once()
            if wait is None:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), wait)

    async def _once(self) -> float | None:
        began = time.monotonic()
        self._restarts.started(began)
        child = self.child = self._spawn()
        self._say(self.name, f"started (pid {child.pid})")
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch(child, began), name=f"{self.name} readiness")
                code = await child.wait()
                watching.cancel()
        except BaseException:
            child.kill()
            raise
        if self._stopping.is_set():
            return None
        child.kill()  # the rest of its group
        self._say(self.name, f"crashed ({_ending(code)})")
        for line in last_words.readable(child.last_words()):
            self._say(self.name, f"  | {line}")
        await self._on_crash()
        wait = self._restarts.ended(time.monotonic(), code)
        if wait is None:
            raise StartFailed(f"{self.name} cannot be started, see {self.log}")
        return wait

    async def _watch(self, child: Child, began: float) -> None:
        try:
            async with asyncio.timeout(self._ready_within):
                self.facts = await self._ready(child)
        except TimeoutError:
            self._say(self.name, f"not ready after {self._ready_within:g} s")
            child.kill()
            return
        except (OSError, ValueError) as exc:
            self._say(self.name, f"does not answer as it should: {exc}")
            child.kill()
            return
        self._restarts.ready()
        where = self.facts.get("url", "")
        self._say(self.name, f"ready after {time.monotonic() - began:.1f} s{f' at {where}' if where else ''}")
        self.first_ready.set()
        self._on_ready()

    async def stop(self, grace: float) -> None:
        """End it, whatever it is doing. Nothing happens when it does not run."""
        self._stopping.set()
        if self.child is None or self.child.code is not None:
            return
        began = time.monotonic()
        code = await self.child.stop(grace)
        self._say(self.name, f"stopped after {time.monotonic() - began:.1f} s ({_ending(code)})")


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
