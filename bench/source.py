"""Worker: a scripted daemon, good enough for a session to be opened on it, that writes prepared frames.

Several frames go into one write, made before the clock starts, so that the source is never what a measurement measures.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

from bench import events
from bench.connection import Connection, HttpRequest
from bench.workers import PATIENCE, BenchError, Handler, serve_async

_RUN = 64 * 1024  # bytes to a write
_FLOOD_TICK = 0.002
_HEALTHY = {"status": "ok", "timestamp": "2031-04-05T06:07:08Z"}
_GIT = {
    "success": True,
    "branch": "main",
    "remote_branch": "",
    "head_commit": "",
    "base_commit": "",
    "ahead": 0,
    "behind": 0,
    "remote_ahead": 0,
    "remote_behind": 0,
    "modified": [],
    "added": [],
    "deleted": [],
    "untracked": [],
    "renamed": [],
    "files": {},
    "timestamp": "2031-04-05T06:07:08.120Z",
}


class Instance:
    """One instance: its own port, an agent that does nothing by itself, a workspace that nothing happens in."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.port = 0
        self.streams: dict[str, Connection] = {}
        self._server: asyncio.Server | None = None
        self._running = False

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._route, self._upgraded), "127.0.0.1", 0
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def stream(self, name: str) -> Connection:
        """The socket that a backend opened. Raises TimeoutError when none does."""
        async with asyncio.timeout(PATIENCE):
            while (connection := self.streams.get(name)) is None or not connection.open:
                await asyncio.sleep(0.01)
        return connection

    def _route(self, request: HttpRequest) -> tuple[int, Any]:
        match request.method, request.path.removeprefix("/api/v1"):
            case "GET", "/health":
                return 200, _HEALTHY
            case "GET", "/status":
                status = "running" if self._running else "stopped"
                return 200, {
                    "agent_status": status,
                    "process_info": {"status": status, "exit_code": -1, "pid": 1},
                }
            case "POST", "/agent/configure" | "/start" | "/stop" as path:
                self._running = path == "/start" or (self._running and path != "/stop")
                return 200, {"success": True, "message": "done", "command": "bench"}
            case "GET", "/git/status":
                return 200, _GIT
            case "GET", "/processes":
                return 200, []
            case "GET", "/shell/status":
                return 200, {"available": True, "running": True}
            case "GET", "/shell/buffer":
                return 200, {"data": ""}
            case _:
                return 404, {"error": "not part of this daemon"}

    def _upgraded(self, path: str, connection: Connection) -> None:
        if path.endswith("/agent/stream"):
            connection.on_text = lambda frame: self._asked(connection, frame)
            self.streams["agent"] = connection
        else:
            connection.on_text = lambda frame: self._heard(connection, frame)
            connection.say({"type": "connected", "timestamp": int(time.time() * 1000)})
            self.streams["workspace"] = connection

    def _asked(self, connection: Connection, frame: dict[str, Any]) -> None:
        if frame.get("type") != "request":
            return
        payload: dict[str, Any] = {"success": True}
        if frame["action"] in ("agent.session.new", "agent.session.load"):
            payload["session_id"] = "bench"
        elif frame["action"] == "agent.permissions.list":
            payload = {"permissions": [], "total": 0}
        connection.say(
            {
                "id": frame["id"],
                "type": "response",
                "action": frame["action"],
                "payload": payload,
                "timestamp": "2031-04-05T06:07:08Z",
            }
        )

    def _heard(self, connection: Connection, frame: dict[str, Any]) -> None:
        if frame.get("type") == "ping":
            connection.say({"type": "pong", "timestamp": int(time.time() * 1000)})


class Daemon:
    """The control server and its instances."""

    def __init__(self) -> None:
        self.instances: dict[str, Instance] = {}
        self.control_port = 0
        self._newest = ""
        self._ports: dict[str, Instance] = {}
        self._talking: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        # Instances are made here before they are asked for, since a route answers at once.
        self._spare: list[Instance] = []
        for _ in range(64):
            await self._add_spare()
        server = await loop.create_server(lambda: Connection(self._route, lambda *_: None), "127.0.0.1", 0)
        self.control_port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            if self._talking is not None:
                self._talking.cancel()
            server.close()
            for instance in [*self.instances.values(), *self._spare]:
                instance.close()

    async def _add_spare(self) -> None:
        instance = Instance("")
        await instance.open()
        self._spare.append(instance)

    def _create(self, id: str) -> Instance:
        if not self._spare:
            raise BenchError("no more instances")
        instance = self._spare.pop()
        instance.id = id
        self.instances[id] = instance
        self._newest = id
        return instance

    def _route(self, request: HttpRequest) -> tuple[int, Any]:
        id = request.path.removeprefix("/api/v1/instances").strip("/")
        match request.method, request.path.startswith("/api/v1/instances"):
            case "GET", False if request.path == "/health":
                return 200, _HEALTHY
            case "POST", False if request.path == "/auth/handshake":
                return 200, {"token": "bench"}
            case "POST", True:
                instance = self._create(request.body.get("id") or str(uuid.uuid4()))
                return 201, {"id": instance.id, "port": instance.port}
            case "GET", True:
                shown = [
                    self._shown(instance) for instance in self.instances.values() if id in ("", instance.id)
                ]
                return 200, shown if not id else (shown[0] if shown else {"error": "instance not found"})
            case "DELETE", True:
                if (gone := self.instances.pop(id, None)) is not None:
                    gone.close()
                return 200, {"message": "instance stopped successfully"}
            case _:
                return 404, {"error": "not part of this daemon"}

    @staticmethod
    def _shown(instance: Instance) -> dict[str, Any]:
        return {
            "id": instance.id,
            "port": instance.port,
            "status": "running",
            "workspace_path": "/",
            "agent_command": "bench",
            "created_at": "2031-04-05T06:07:08Z",
        }

    # What the benchmark asks for

    async def where(self) -> dict[str, Any]:
        return {"control_url": f"http://127.0.0.1:{self.control_port}"}

    async def newest(self) -> dict[str, Any]:
        """The instance that was made last."""
        return {"instance": self._newest}

    async def instance(self) -> dict[str, Any]:
        """A new instance, for those who come without a control server."""
        instance = self._create(str(uuid.uuid4()))
        return {"instance": instance.id, "url": f"ws://127.0.0.1:{instance.port}/api/v1/agent/stream"}

    async def send(self, instance: str, count: int, size: int) -> dict[str, Any]:
        """Write `count` message chunks to the agent stream as fast as they are taken."""
        stream = await self.instances[instance].stream("agent")
        event = events.message_chunk(size)
        to_a_write = max(_RUN // size, 1)
        run = events.frames(event, to_a_write)
        rest = events.frames(event, count % to_a_write)
        began = time.monotonic()
        async with asyncio.timeout(PATIENCE):
            for _ in range(count // to_a_write):
                await stream.writable()
                stream.write(run)
            stream.write(rest)
            await stream.writable()
        return {"began": began, "written": time.monotonic()}

    async def flood(
        self, instance: str, bytes_per_second: float, seconds: float, size: int
    ) -> dict[str, Any]:
        """Write shell output at a steady rate; says how many bytes were taken (a peer that is behind gets less)."""
        stream = await self.instances[instance].stream("workspace")
        event = events.shell_output(size)
        began = time.monotonic()
        written, skipped = 0, 0
        due = 0.0
        while (passed := time.monotonic() - began) < seconds:
            due = bytes_per_second * passed
            frames = int((due - written - skipped) // size)
            if stream.waiting:
                skipped += frames * size
            elif frames:
                stream.write(events.frames(event, frames))
                written += frames * size
            await asyncio.sleep(_FLOOD_TICK)
        return {"bytes": written, "skipped": skipped, "seconds": time.monotonic() - began}

    async def talk(self, every: float) -> dict[str, Any]:
        """From now on each instance writes a small event every so many seconds to whoever reads its agent stream."""

        async def talking() -> None:
            while True:
                for instance in self.instances.values():
                    stream = instance.streams.get("agent")
                    if stream is not None and stream.open:
                        stream.write(events.frames(events.tool_update(time.monotonic_ns()), 1))
                await asyncio.sleep(every)

        self._talking = asyncio.create_task(talking(), name="talk")
        return {}

    async def beat(self, instance: str, count: int, every: float) -> dict[str, Any]:
        """Write small events, one every so many seconds, each saying when it was written."""
        stream = await self.instances[instance].stream("agent")
        loop = asyncio.get_running_loop()
        due = loop.time()
        for _ in range(count):
            due += every
            await asyncio.sleep(due - loop.time())
            stream.write(events.frames(events.tool_update(time.monotonic_ns()), 1))
        return {}


@contextlib.asynccontextmanager
async def main() -> AsyncIterator[Mapping[str, Handler]]:
    daemon = Daemon()
    async with daemon.serving():
        yield {
            "where": daemon.where,
            "newest": daemon.newest,
            "instance": daemon.instance,
            "send": daemon.send,
            "flood": daemon.flood,
            "beat": daemon.beat,
            "talk": daemon.talk,
        }


if __name__ == "__main__":
    serve_async(main)
