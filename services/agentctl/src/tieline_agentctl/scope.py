"""A parent for tasks of an object that is opened in one task and closed in another.

`asyncio.TaskGroup` must be left by the task that entered it; an instance's agent is opened by one HTTP request
and closed by another. A task that fails is logged as an error at once; it takes nobody else along.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from tieline_agentctl import tracing

log = structlog.get_logger()


class Scope:
    """Owns tasks and ends them all when it is closed."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task that lives no longer than this scope."""
        task = asyncio.get_running_loop().create_task(work, name=name, context=tracing.apart())
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def __len__(self) -> int:
        return len(self._tasks)

    async def close(self) -> None:
        """Cancel what still runs, but not the task that asks, and wait for its end."""
        while tasks := self._tasks - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task failed", task=task.get_name(), exc_info=error)
