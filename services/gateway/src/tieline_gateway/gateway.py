"""The gateway at work: its connections, and what they share; the orderly end."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Collection, Coroutine
from http import HTTPStatus
from typing import Any

import structlog
from tieline_protocol.bus import Bus
from tieline_protocol.leases import ProcessLease
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from tieline_gateway import metrics
from tieline_gateway.access import origin_passes
from tieline_gateway.broadcaster import SessionStreamBroadcaster
from tieline_gateway.callers import Callers
from tieline_gateway.close_codes import CloseCode
from tieline_gateway.config import Config
from tieline_gateway.heads import Records
from tieline_gateway.parts import Parts
from tieline_gateway.remotes import Remotes
from tieline_gateway.requests import Requests
from tieline_gateway.sockets import Socket
from tieline_gateway.users import Users
from tieline_gateway.viewer import Viewer

log = structlog.get_logger()

_PATH = "/ws"
_BATCH_SECONDS = 0.05  # between batches of sockets that are closed
_GRACE = 3.0  # for answers that are still awaited when the gateway stops


class Gateway:
    """All connections. `group` owns the tasks, and they end with it."""

    def __init__(
        self,
        config: Config,
        control: Bus,
        bulk: Bus,
        reads: Bus,
        lease: ProcessLease,
        group: asyncio.TaskGroup,
    ) -> None:
        self.config = config
        self.stopping = False
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()
        self._viewers: set[Viewer] = set()
        self._by_id: dict[str, Viewer] = {}  # those who said who they are
        limits = config.limits
        records = Records(control)
        requests = Requests(control, records, limits.result_bytes, limits.patience)
        self.users = Users(control)
        self.broadcaster = SessionStreamBroadcaster(control, bulk, reads, records, limits, self.start)
        self.callers = Callers(control)
        self.remotes = Remotes(control, lease, requests, limits, self.start, self._by_id)
        self.parts = Parts(
            config, control, requests, self.broadcaster, self.callers, self.remotes, self.start
        )

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task that ends with the gateway, not with the socket that asked for it."""
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def viewers(self) -> Collection[Viewer]:
        return self._viewers

    @property
    def tasks(self) -> int:
        """How much is under way."""
        return len(self._tasks)

    def end(self) -> None:
        """Cancel what is under way."""
        for task in list(self._tasks):
            task.cancel()

    # Handshake and connections

    def process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Refuse what may not connect, before anything else is done for it."""
        if self.stopping:
            return self._refuse(connection, HTTPStatus.SERVICE_UNAVAILABLE, "stopping")
        if request.path.partition("?")[0] != _PATH:
            return self._refuse(connection, HTTPStatus.NOT_FOUND, "path")
        origins = request.headers.get_all("Origin")
        if not origin_passes(origins, self.config.origins, self.config.allow_no_origin):
            log.warning("an origin was refused", origin=str(origins)[:200])
            return self._refuse(connection, HTTPStatus.FORBIDDEN, "origin")
        return None

    def _refuse(self, connection: ServerConnection, status: HTTPStatus, why: str) -> Response:
        metrics.REFUSED.labels(reason=why).inc()
        return connection.respond(status, f"{status.phrase}\n")

    async def handle(self, connection: ServerConnection) -> None:
        """One connection, from handshake to close."""
        assert isinstance(connection, Socket)
        viewer = Viewer(self, connection, connection.loop.time())
        self._viewers.add(viewer)
        metrics.CONNECTIONS.inc()
        await viewer.run()

    def entered(self, viewer: Viewer) -> None:
        """A connection has said whose it is. Raises BadSubject."""
        self.users.entered(viewer.user, viewer)
        self._by_id[viewer.id] = viewer

    def closing(self, viewer: Viewer) -> None:
        """A connection is about to be gone: nothing is handed to it any more. Twice changes nothing."""
        if self._by_id.pop(viewer.id, None) is not None:
            self.remotes.closed(viewer)

    def left(self, viewer: Viewer) -> None:
        """A connection is gone."""
        self.closing(viewer)
        self._viewers.discard(viewer)
        metrics.CONNECTIONS.dec()
        self.users.left(viewer)

    def jitter_ms(self) -> int:
        """When to come back: not all at once."""
        return random.randint(100, 2_000)

    # Once a second

    async def sweep(self) -> None:
        """What happens by the clock, for all connections and followed logs."""
        loop = asyncio.get_running_loop()
        with metrics.GATEWAY.of(self):
            while True:
                await asyncio.sleep(min(1.0, self.config.limits.silence_seconds / 2))
                now, wall = loop.time(), time.time()
                for viewer in list(self._viewers):
                    viewer.check(now, wall)
                self.broadcaster.tick(now)
                self.remotes.tick(now)
                self.callers.tick(now)

    # The end

    async def drain(self) -> None:
        """Close all sockets, a few at a time in random order; those that await answers last."""
        self.stopping = True
        loop = asyncio.get_running_loop()
        limits = self.config.limits
        until = loop.time() + limits.drain_seconds
        patience = loop.time() + min(_GRACE, limits.drain_seconds)
        waiting = list(self._viewers)
        random.shuffle(waiting)
        at_once = max(50, int(len(waiting) * _BATCH_SECONDS / max(limits.drain_seconds / 2, _BATCH_SECONDS)))
        while waiting:
            patient = loop.time() < patience
            ready = [viewer for viewer in waiting if not (patient and viewer.busy)][:at_once]
            for viewer in ready:
                viewer.close(CloseCode.RESTARTING, self.jitter_ms())
            closed = set(ready)
            waiting = [viewer for viewer in waiting if viewer not in closed]
            if waiting:
                await asyncio.sleep(_BATCH_SECONDS)
        while (self._viewers or self.remotes.leaving) and loop.time() < until + limits.close_seconds:
            await asyncio.sleep(0.01)
