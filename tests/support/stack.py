"""The services as a cluster runs them: a process each, replicas where wanted, each killed and started again by name.

Unlike `tieline up`, whatever dies leaves the others alone: a daemon outlives the streams process that dialled it.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tieline_ops import tokens

from tests.support import daemon as daemons
from tests.support.frontend import Frontend
from tests.support.nats_server import NatsServer
from tests.support.ports import free_ports
from tests.support.process import Process

_SECRET = "a secret of at least thirty-two bytes"


class Stack:
    """Use as `async with Stack(directory) as stack`. Names: `streams`, `gateway`, `remotes`, `agent`, `daemon`.

    `broker` is where services find NATS; `None`: a server of the stack's own, `nats`. `control`: URL and token file of
    somebody's daemon; `None`: a real one, with the example agent. More than one replica: `streams-1`, `streams-2`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        broker: str | None = None,
        control: tuple[str, Path] | None = None,
        replicas: dict[str, int] | None = None,
        options: dict[str, Sequence[str]] | None = None,
    ) -> None:
        self.directory = directory
        self.nats = NatsServer(directory / "nats") if broker is None else None
        self.broker = broker or ""
        self.services: dict[str, Process] = {}
        self.workspaces = directory / "workspaces"
        self.agent_state = directory / "agent-state"
        self._control = control
        self._replicas = replicas or {"streams": 1, "gateway": 1, "remotes": 1, "agent": 1}
        self.ports = free_ports(self._replicas.get("gateway", 0))  # of the gateways
        self._options = options or {}
        self._nonce = secrets.token_hex(8)

    def frontend(self, user: str = "ada@example.org", port: int = 0) -> Frontend:
        """Another one, at the first gateway or at a `port` that leads to some gateway."""
        url = f"ws://127.0.0.1:{port or self.ports[0]}/ws"
        return Frontend(url, tokens.mint(_SECRET, user, time.time()))

    def names(self, kind: str) -> list[str]:
        """The replicas of a service."""
        return [name for name in self.services if name.partition("-")[0] == kind]

    # Deaths

    async def kill(self, name: str) -> None:
        """SIGKILL, and nobody starts it again."""
        await self.services[name].kill()

    async def start(self, name: str) -> None:
        """Start what was killed, and wait until it is ready."""
        await self.services[name].start()
        if name == "daemon":
            await self._greet()

    async def replace(self, name: str) -> None:
        """SIGKILL, then what keeps services alive starts it again; returns when it is ready."""
        await self.kill(name)
        await self.start(name)

    async def roll(self, name: str) -> None:
        """SIGTERM, and its successor once it has ended."""
        await self.services[name].stop(20)
        await self.start(name)

    # Start and end

    async def __aenter__(self) -> Stack:
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            if self.nats is not None:
                await self.nats.start()
                self.broker = self.nats.url
            self._write_files()
            if self._control is None:
                self.services["daemon"] = self._daemon()
                await self.start("daemon")
            for kind, count in self._replicas.items():
                for number in range(1, count + 1):
                    name = kind if count == 1 else f"{kind}-{number}"
                    self.services[name] = self._service(kind, name)
            await asyncio.gather(*(self.start(name) for name in self.services if name != "daemon"))
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.services.values():
            if process.started and process.code is None:
                process.signal(signal.SIGKILL)
        await asyncio.gather(*(one.wait() for one in self.services.values() if one.started))
        if self.nats is not None:
            await self.nats.kill()

    @property
    def logs(self) -> str:
        """The ends of all logs, for a test that fails."""
        return "\n".join(f"--- {name}\n{one.tail(3_000)}" for name, one in self.services.items())

    def _write_files(self) -> None:
        (self.directory / "secret").write_text(_SECRET)
        url, token_file = self._control or (f"http://127.0.0.1:{free_ports(1)[0]}", self.directory / "token")
        self._daemon_url = url
        static = {
            "kind": "static",
            "control_url": url,
            "token_file": str(token_file),
            "root": str(self.workspaces),
        }
        agent: dict[str, Any] = {
            "command": [sys.executable, "-m", "tieline_agentctl.example_agent"],
            "env": {"TIELINE_EXAMPLE_AGENT_STATE": str(self.agent_state)},
        }
        executors = {"executors": {"static": static}, "agents": {"example": agent}}
        (self.directory / "executors.json").write_text(json.dumps(executors))

    def _service(self, kind: str, name: str) -> Process:
        options: list[str] = []
        if kind == "streams":
            options = ["--executors-file", str(self.directory / "executors.json")]
        elif kind == "gateway":
            secret = str(self.directory / "secret")
            options = ["--port", str(self._port_of(name)), "--jwt-secret-file", secret, "--allow-no-origin"]
        elif kind == "agent":
            options = ["--openai-base-url", "http://127.0.0.1:9/v1"]
        args = [*options, *self._options.get(kind, ()), "--nats-url", self.broker]
        return Process(
            f"tieline_{kind}", self.directory, [*args, "--log-format", "text"], name=name, timeout=40
        )

    def _port_of(self, gateway: str) -> int:
        return self.ports[int(gateway.partition("-")[2] or 1) - 1]

    def _daemon(self) -> Process:
        port = int(self._daemon_url.rpartition(":")[2])
        return daemons.process_of(self.directory, nonce=self._nonce, name="daemon", port=port)

    async def _greet(self) -> None:
        token = await asyncio.to_thread(daemons.handshake, self._daemon_url, self._nonce)
        fresh = self.directory / "token.new"
        fresh.write_text(token + "\n")
        os.replace(fresh, self.directory / "token")
