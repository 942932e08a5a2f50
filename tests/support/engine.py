"""A scripted container engine: HTTP on a unix socket, and a process of our daemon for each container.

A container has a loopback address of its own, on which the daemon listens at the ports that it is told; published ports
are forwarded there. Images are commands.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.support.link import Link

IMAGE = "tieline/agentctl:test"


@dataclass
class Container:
    id: str
    name: str
    config: dict[str, Any]
    address: str
    process: asyncio.subprocess.Process | None = None
    links: dict[str, Link] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def start(self, command: list[str], log: Path) -> None:
        given = dict(one.split("=", 1) for one in self.config["Env"])
        given["AGENTCTL_LISTEN_HOST"] = self.address  # a container has all of its network to itself
        for bind in self.config["HostConfig"]["Binds"]:
            outside, _, inside = bind.partition(":")
            assert outside == inside, "there is no file system of its own here"
        with log.open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                *(self.config.get("Cmd") or command),
                env={"PATH": os.environ["PATH"], "HOME": str(log.parent), **given},
                cwd=self.config["WorkingDir"],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        for port in self.config["HostConfig"].get("PortBindings", {}):
            self.links[port] = Link(self.address, int(port.partition("/")[0]))
            await self.links[port].up()

    async def stop(self, grace: float) -> None:
        for link in self.links.values():
            await link.__aexit__(None, None, None)
        self.links = {}
        if self.process is None:
            return
        for number, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, 5)):
            try:
                os.killpg(self.process.pid, number)
                await asyncio.wait_for(self.process.wait(), wait)
            except (ProcessLookupError, TimeoutError):
                pass
        await self.process.wait()

    def inspected(self) -> dict[str, Any]:
        code = self.process.returncode if self.process is not None else 0
        return {
            "Id": self.id,
            "State": {"Running": self.running, "ExitCode": code or 0, "Error": ""},
            "NetworkSettings": {
                "Ports": {
                    port: [{"HostIp": "127.0.0.1", "HostPort": str(link.port)}]
                    for port, link in self.links.items()
                },
                "Networks": {"inner": {"IPAddress": self.address}},
            },
        }


class Engine:
    """Use as `async with`; leaving the block ends every container."""

    def __init__(self, directory: Path) -> None:
        self.socket = directory / "engine.sock"
        self.containers: dict[str, Container] = {}
        self.images = {IMAGE: [sys.executable, "-m", "tieline_agentctl"]}
        self.asked: list[str] = []
        self._directory = directory
        self._server: asyncio.Server | None = None

    async def up(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.socket)

    async def down(self) -> None:
        """The engine is away; its containers go on."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None
        self.socket.unlink(missing_ok=True)

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.down()
        for container in self.containers.values():
            await container.stop(5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split(" ", 2)
        sizes = [
            line.split(":")[1] for line in head.splitlines() if line.lower().startswith("content-length:")
        ]
        body = await reader.readexactly(int(sizes[0])) if sizes else b""
        parts = urlsplit(target)
        self.asked.append(f"{method} {parts.path}")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        try:
            status, value = await self._answer(method, parts.path, query, json.loads(body or b"{}"))
        except KeyError:
            status, value = 404, {"message": "No such container"}
        text = b"" if value is None else json.dumps(value).encode()
        writer.write(
            f"HTTP/1.1 {status} Whatever\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        writer.write(text)
        await writer.drain()
        writer.close()

    async def _answer(
        self, method: str, path: str, query: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, Any]:
        words = path.strip("/").split("/")
        match method, words:
            case "GET", ["containers", "json"]:
                wanted = [one.split("=", 1) for one in json.loads(query["filters"])["label"]]
                return 200, [
                    {"Id": one.id, "State": "running" if one.running else "exited"}
                    for one in self.containers.values()
                    if all(one.config["Labels"].get(name) == value for name, value in wanted)
                    and (one.running or query.get("all") == "true")
                ]
            case "POST", ["containers", "create"]:
                return self._create(query["name"], body)
            case "POST", ["containers", id, "start"]:
                container = self.containers[id]
                command = self.images[container.config["Image"]]
                await container.start(command, self._directory / f"{container.name}.log")
                return 204, None
            case "GET", ["containers", id, "json"]:
                return 200, self.containers[id].inspected()
            case "POST", ["containers", id, "stop"]:
                if not self.containers[id].running:
                    return 304, None
                await self.containers[id].stop(float(query["t"]))
                return 204, None
            case "DELETE", ["containers", id]:
                await self.containers.pop(id).stop(0.1)
                return 204, None
        return 404, {"message": "page not found"}

    def _create(self, name: str, config: dict[str, Any]) -> tuple[int, Any]:
        if config["Image"] not in self.images:
            return 404, {"message": f"No such image: {config['Image']}"}
        if any(one.name == name for one in self.containers.values()):
            return 409, {"message": f'The container name "/{name}" is already in use'}
        id = secrets.token_hex(32)
        numbers = [secrets.randbelow(254) + 1 for _ in range(3)]
        self.containers[id] = Container(id, name, config, "127." + ".".join(map(str, numbers)))
        return 201, {"Id": id, "Warnings": []}
