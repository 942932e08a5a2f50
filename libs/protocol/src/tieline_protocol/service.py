"""The one way to start, watch and stop a service.

An app is an async context manager: entering it is the start-up, its body the service at work, leaving it the
shutdown. `run` gives it a `Service`, tells readiness, waits for SIGTERM or SIGINT or for a task that fails, and
leaves it again. Exit code 0 after a signal, 1 after a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.metadata
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import structlog
import uvloop

from tieline_protocol import logs, tracing
from tieline_protocol.health import Health

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Common:
    """The knobs that all services share."""

    name: str
    health_host: str = "127.0.0.1"
    health_port: int = 0
    ready_file: Path | None = None
    log_level: str = "info"
    log_format: logs.Format = "json"


class Service:
    """What an app gets: where its tasks live, what it says of its health, when it must stop."""

    def __init__(self, name: str, group: asyncio.TaskGroup, stopping: asyncio.Event) -> None:
        self.name = name
        self.health = Health(name)
        self.stopping = stopping
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """A task of the service's: if it fails, the service ends; when the service stops, it is cancelled."""
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _cancel(self) -> None:
        for task in list(self._tasks):
            task.cancel()


App = Callable[[Service], contextlib.AbstractAsyncContextManager[dict[str, Any]]]


def run(common: Common, app: App) -> None:
    """Run a service until it is told to stop, then exit."""
    logs.configure(common.name, common.log_level, common.log_format)
    try:
        with tracing.sending(common.name, _version(common.name)):
            uvloop.run(_main(common, app))
    except BaseException as exc:
        log.error("the service failed", error=repr(exc), exc_info=exc)
        sys.exit(1)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(f"tieline-{name}")
    except importlib.metadata.PackageNotFoundError:
        return ""


async def _main(common: Common, app: App) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with running(common, app, stopping):
        _spare_the_collector()
        await stopping.wait()


def _spare_the_collector() -> None:
    """What start-up made stays for good; going through all of it again would stop the loop for 50 ms each time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)  # a burst that waits is not garbage


@contextlib.asynccontextmanager
async def running(
    common: Common, app: App, stopping: asyncio.Event | None = None
) -> AsyncIterator[dict[str, Any]]:
    """The service at work in this event loop; yields what its app yields. Leaving the block stops it.

    Tests use it directly; `run` puts signals, logs and exit codes round it. Yields an empty dict where `stopping`
    was set before the start-up had ended (a broker that is away).
    """
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        service = Service(common.name, group, stopping or asyncio.Event())
        async with service.health.serving(common.health_host, common.health_port) as health_url:
            started: asyncio.Future[dict[str, Any]] = loop.create_future()
            leave = asyncio.Event()
            stop = loop.create_task(service.stopping.wait(), name="waiting for the signal")
            driver = group.create_task(_drive(app(service), started, leave), name=f"{common.name} app")
            try:
                waited: set[asyncio.Future[Any]] = {started, stop, driver}
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if started.done():
                    facts = {"pid": os.getpid(), "health_url": health_url, **started.result()}
                    service.health.started = True
                    if common.ready_file is not None:
                        write_whole(common.ready_file, orjson.dumps(facts))
                    log.info("ready", **{key: value for key, value in facts.items() if key != "token"})
                    yield facts
                elif not driver.done():
                    driver.cancel()
                    yield {}
            finally:
                stop.cancel()
                service.health.stopping = True
                log.info("stopping")
                leave.set()
                await asyncio.wait([driver])
                service._cancel()
    log.info("stopped")


async def _drive(
    app: contextlib.AbstractAsyncContextManager[dict[str, Any]],
    started: asyncio.Future[dict[str, Any]],
    leave: asyncio.Event,
) -> None:
    """An app lives in one task from start to end, since what it opens (time-outs, task groups) belongs to a task."""
    async with app as facts:
        started.set_result(facts)
        await leave.wait()


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file that nobody ever sees half-written."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    os.replace(part, path)
