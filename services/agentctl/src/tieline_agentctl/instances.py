"""Every instance of this daemon: created one at a time, found by id, ended on demand, when idle and at the end."""

import asyncio
import errno
import socket
import time
import uuid
from collections.abc import Callable
from typing import Self

import structlog
from starlette.types import ASGIApp

from tieline_agentctl.config import Config
from tieline_agentctl.instance import Create, Instance
from tieline_agentctl.ports import NoPortLeft, PortPool
from tieline_agentctl.scope import Scope
from tieline_agentctl.serving import bind, serving

log = structlog.get_logger()

DELETE_BUDGET = 15.0
STOP_BUDGET = 25.0  # of the daemon's 30 s


class CreateFailed(Exception):
    """The text follows `failed to create instance: `."""


class _Home:
    """The task that an instance lives in, and how to end it."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.end = asyncio.Event()
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None


class Instances:
    def __init__(self, config: Config, app_of: Callable[[Instance], ASGIApp]) -> None:
        self._config = config
        self._app_of = app_of
        self._pool = PortPool(config.instance_port_base, config.instance_port_max)
        self._homes: dict[str, _Home] = {}
        self._creating = asyncio.Lock()
        self._closing = False
        self._tasks = Scope()

    async def __aenter__(self) -> Self:
        if self._config.idle_timeout > 0:
            self._tasks.spawn(self._reap(), "idle reaper")
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Every instance is ended the orderly way as long as the budget lasts, then cut off."""
        self._closing = True
        homes = list(self._homes.values())
        for home in homes:
            home.end.set()
        tasks = [home.task for home in homes if home.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_BUDGET)
        await self._tasks.close()

    @property
    def closing(self) -> bool:
        """Whether none is made any more."""
        return self._closing

    def all(self) -> list[Instance]:
        return [home.instance for home in self._homes.values()]

    def get(self, instance_id: str) -> Instance | None:
        home = self._homes.get(instance_id)
        return home.instance if home else None

    async def create(self, create: Create) -> Instance:
        """When it returns, the port answers. One at a time; whoever is cancelled leaves nothing behind."""
        async with self._creating:
            if self._closing:
                raise CreateFailed("daemon is shutting down")
            create = create if create.id else create.model_copy(update={"id": str(uuid.uuid4())})
            if create.id in self._homes:
                raise CreateFailed(f"instance {create.id} already exists")
            sock = self._listen()
            home = _Home(Instance(create, self._config, sock.getsockname()[1]))
            self._homes[create.id] = home
            home.task = self._tasks.spawn(self._live(home, sock), f"instance {create.id}")
            try:
                await asyncio.shield(home.ready)
            except BaseException:
                home.end.set()
                raise
            return home.instance

    async def delete(self, instance_id: str) -> bool:
        """False when there is none. Every process and socket of it is gone afterwards."""
        home = self._homes.get(instance_id)
        if home is None or home.task is None:
            return False
        home.instance.stopping = True
        home.end.set()
        done, _ = await asyncio.wait([home.task], timeout=DELETE_BUDGET)
        if not done:
            log.error("an instance took too long to stop, it is cut off", instance=instance_id)
            home.task.cancel()
            await asyncio.wait([home.task])
        return True

    async def _live(self, home: _Home, sock: socket.socket) -> None:
        instance = home.instance
        try:
            async with instance.running(), serving(self._app_of(instance), sock):
                log.info("instance is up", instance=instance.id, port=instance.port)
                if not home.ready.done():
                    home.ready.set_result(None)
                await home.end.wait()
                await instance.stop()
        except Exception as exc:
            # One broken instance must not take the others with it.
            log.exception("an instance broke", instance=instance.id)
            if not home.ready.done():
                home.ready.set_exception(CreateFailed(str(exc)))
        finally:
            sock.close()
            self._homes.pop(instance.id, None)
            self._pool.give_back(instance.port)
            if not home.ready.done():
                home.ready.cancel()
            log.info("instance is gone", instance=instance.id, port=instance.port)

    def _listen(self) -> socket.socket:
        while True:
            try:
                port = self._pool.take()
            except NoPortLeft as exc:
                raise CreateFailed(str(exc)) from exc
            try:
                return bind(self._config.host, port)
            except OSError as exc:
                if exc.errno != errno.EADDRINUSE or port == 0:
                    self._pool.give_back(port)
                    raise CreateFailed(str(exc)) from exc
                log.warning("a port of the pool is in use by somebody else", port=port)
                self._pool.occupied(port)

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(self._config.idle_interval)
            for instance in self.all():
                if instance.activity.idle_for(time.monotonic()) >= self._config.idle_timeout:
                    log.info("an idle instance is deleted", instance=instance.id)
                    await self.delete(instance.id)
