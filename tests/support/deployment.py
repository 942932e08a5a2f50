"""A cluster's manifests as processes on this machine: the rendered configuration, environments and command lines.

Substituted are only addresses, ports and paths, since all pods are one machine here; what is substituted must have been
there.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from tieline_ops import tokens
from tieline_ops.scripted_model.answers import MODEL
from tieline_protocol.bus import BusSettings

from tests.support import manifests
from tests.support.eventually import eventually
from tests.support.frontend import Frontend
from tests.support.manifests import container, environment, one
from tests.support.nats_server import binary, die_with_parent
from tests.support.ports import free_ports
from tests.support.process import Process

OVERLAY = "production"


def put(text: str, old: str, new: str) -> str:
    """The text with something in the place of what must be there."""
    assert old in text, f"{old!r} is not in:\n{text}"
    return text.replace(old, new)


def _command(workload: manifests.Doc) -> list[str]:
    """A pod's command line, with this machine's Python."""
    python, *rest = container(workload)["command"]
    assert python == "/app/bin/python"
    assert rest[0] == "-m"
    return [sys.executable, *rest]


class Node:
    """One pod of the broker."""

    def __init__(self, directory: Path, number: int, ports: list[dict[str, int]], *, trace: bool) -> None:
        self.directory = directory
        self.name = f"nats-{number}"
        self.ports = ports[number]
        self._all = ports
        self._trace = trace
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self.directory / "nats.log").read_text(errors="replace")

    @property
    def code(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    def write(self, secrets: Mapping[str, Mapping[str, str]]) -> None:
        """The projected volume: the ConfigMap and the two secrets."""
        config = self.directory / "etc"
        config.mkdir(parents=True, exist_ok=True)
        files = dict(one(OVERLAY, "ConfigMap", "nats")["data"])
        files |= {**secrets["nats-users"], **secrets["nats-routes"]}
        main = put(files["nats.conf"], '"0.0.0.0:4222"', f'"127.0.0.1:{self.ports["client"]}"')
        main = put(main, '"0.0.0.0:8222"', f'"127.0.0.1:{self.ports["monitor"]}"')
        main = put(main, '"/data"', json.dumps(str(self.directory / "data")))
        files["nats.conf"] = put(main, "/run/nats/nats.pid", str(self.directory / "nats.pid"))
        if self._trace:
            files["nats.conf"] += "trace: true\n"
        files["cluster.conf"] = put(
            files["cluster.conf"], '"0.0.0.0:6222"', f'"127.0.0.1:{self.ports["routes"]}"'
        )
        for number, other in enumerate(self._all):
            files["routes.conf"] = put(
                files["routes.conf"], f"nats-{number}.nats-peers:6222", f"127.0.0.1:{other['routes']}"
            )
        for name, text in files.items():
            (config / name).write_text(text)

    def start(self) -> None:
        command = container(one(OVERLAY, "StatefulSet", "nats"))["command"]
        assert command[0] == "/nats-server"
        words = [word.replace("/etc/nats", str(self.directory / "etc")) for word in command[1:]]
        with (self.directory / "nats.log").open("ab") as log:
            self._process = subprocess.Popen(
                [binary(), *words],
                env={"POD_NAME": self.name},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )

    def pre_stop(self) -> None:
        """What the kubelet runs before it sends SIGTERM."""
        hook = container(one(OVERLAY, "StatefulSet", "nats"))["lifecycle"]["preStop"]["exec"]["command"]
        assert hook[0] == "/nats-server"
        self.run(*(word.replace("/run/nats", str(self.directory)) for word in hook[1:]))

    def run(self, *words: str) -> None:
        """What somebody runs in the pod with the server's own program."""
        subprocess.run([binary(), *words], check=True, timeout=10)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def probe(self, kind: str) -> int:
        """The answer to one of its probes."""
        path = container(one(OVERLAY, "StatefulSet", "nats"))[kind]["httpGet"]["path"]
        async with httpx.AsyncClient(trust_env=False, timeout=5) as http:
            try:
                answer = await http.get(f"http://127.0.0.1:{self.ports['monitor']}{path}")
            except httpx.TransportError:
                return 0
        return answer.status_code


class Deployment:
    """Use as `async with Deployment(directory) as cluster`. `services` are the running pods, by workload.

    `changes`: variables that a test wants otherwise than rendered.
    """

    def __init__(
        self,
        directory: Path,
        *,
        trace: bool = False,
        changes: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.directory = directory
        self.secrets = {name: dict(files) for name, files in manifests.secrets_made().items()}
        found = iter(free_ports(11))
        ports = [{kind: next(found) for kind in ("client", "routes", "monitor")} for _ in range(3)]
        self.nodes = [Node(directory / f"nats-{n}", n, ports, trace=trace) for n in range(3)]
        self.workspaces = directory / "workspaces"
        self.services: dict[str, Process] = {}
        self._daemon_port, self._model_port = next(found), next(found)
        self._changes = changes or {}

    # What a test uses

    @property
    def broker_url(self) -> str:
        return ",".join(f"nats://127.0.0.1:{node.ports['client']}" for node in self.nodes)

    def settings(self, user: str, **rest: Any) -> BusSettings:
        """A connection to the broker as one of its users."""
        password = self.secrets[f"nats-{user}"]["password"]
        return BusSettings(
            self.broker_url, f"test-{user}", user, password, inbox_prefix=f"_INBOX.{user}", **rest
        )

    @property
    def gateway_url(self) -> str:
        return str(self.services["gateway"].facts["url"])

    def token(self, user: str = "ann", now: float | None = None) -> str:
        return tokens.mint(self.secrets["gateway-jwt"]["secret"], user, time.time() if now is None else now)

    def frontend(self, user: str = "ann") -> Frontend:
        return Frontend(self.gateway_url, self.token(user))

    @property
    def log(self) -> str:
        return "\n".join(f"--- {name}\n{process.tail(3_000)}" for name, process in self.services.items())

    async def migrate(self, **changes: str) -> tuple[int, str]:
        """Run the Job; its exit code and log."""
        job = one(OVERLAY, "Job", "migrate")
        log = self.directory / "migrate.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *_command(job),
                env={**os.environ, **self._environment("migrate", job), **changes},
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent,
            )
        try:
            async with asyncio.timeout(60):
                code = await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise AssertionError(f"the job does not end:\n{log.read_text()[-3_000:]}") from None
        return code, log.read_text()

    # Start and end

    async def __aenter__(self) -> Deployment:
        try:
            await self.start_broker()
            code, log = await self.migrate()
            assert code == 0, log
            await self.start_services()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(self._end(process) for process in self.services.values()))
        for node in self.nodes:
            node.kill()

    async def _end(self, process: Process) -> None:
        if process.started and process.code is None:
            process.signal(signal.SIGTERM)
            try:
                await process.wait(20)
            except AssertionError:
                process.signal(signal.SIGKILL)
                await process.wait()

    async def stop_services(self) -> None:
        """The four services; daemons and their sessions go on."""
        await asyncio.gather(*(self._end(self.services[kind]) for kind in manifests.SERVICES))

    async def start_broker(self) -> None:
        """All nodes, ready as their probes say, and with a leader."""
        for node in self.nodes:
            node.write(self.secrets)
            node.start()
        for node in self.nodes:
            for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                try:
                    await eventually(lambda node=node, kind=kind: self._passes(node, kind), 40, 0.05)  # type: ignore[misc]
                except AssertionError:
                    raise AssertionError(f"{node.name} is not ready:\n{node.log[-3_000:]}") from None

    async def _passes(self, node: Node, kind: str) -> bool:
        assert node.code is None, f"{node.name} ended:\n{node.log[-3_000:]}"
        return await node.probe(kind) == 200

    async def start_services(self) -> None:
        self.workspaces.mkdir(parents=True, exist_ok=True)
        self._write_executors()
        if not self.services:
            self.services["model"] = self._model()
            self.services["agentctl"] = self._daemon()
            self.services |= {kind: self.process(kind) for kind in manifests.SERVICES}
        ended = [one for one in self.services.values() if not one.started or one.code is not None]
        await asyncio.gather(*(process.start() for process in ended))

    def process(self, kind: str, name: str = "") -> Process:
        """A pod of a service, not started yet."""
        workload = one(OVERLAY, "Deployment", kind)
        _, _, module, *args = _command(workload)
        return Process(
            module, self.directory, args, self._environment(kind, workload), name=name or kind, timeout=60
        )

    def _environment(self, kind: str, workload: manifests.Doc) -> dict[str, str]:
        secrets = self._mounted(workload)
        given = {key: self._here(value, secrets) for key, value in environment(OVERLAY, workload).items()}
        given |= self._addresses(given)
        for entry in container(workload).get("env", []):
            reference = entry["valueFrom"]["secretKeyRef"]
            given[entry["name"]] = self.secrets[reference["name"]][reference["key"]]
        changes = self._changes.get(kind, {})
        assert given.keys() >= changes.keys()
        return {**given, **changes}

    def _addresses(self, given: Mapping[str, str]) -> dict[str, str]:
        local = {
            "TIELINE_HEALTH_HOST": "127.0.0.1",
            "TIELINE_HEALTH_PORT": "0",
            "TIELINE_GATEWAY_HOST": "127.0.0.1",
            "TIELINE_GATEWAY_PORT": "0",
            "TIELINE_ALLOW_NO_ORIGIN": "true",  # a test is no page
            "OPENAI_BASE_URL": f"http://127.0.0.1:{self._model_port}/v1",
            "TIELINE_MODEL": MODEL,
        }
        return {key: value for key, value in local.items() if key in given}

    def _here(self, value: str, secrets: Mapping[str, Path]) -> str:
        value = value.replace("nats://nats:4222", self.broker_url)
        value = value.replace("/etc/tieline", str(self.directory / "etc"))
        for path, here in secrets.items():
            value = value.replace(path, str(here))
        return value

    def _mounted(self, workload: manifests.Doc) -> dict[str, Path]:
        """Where each mounted secret is on this machine, by its path in the pod."""
        found = {}
        mounts = {mount["name"]: mount["mountPath"] for mount in container(workload)["volumeMounts"]}
        for volume in manifests.pod(workload)["volumes"]:
            if "secret" in volume:
                secret = volume["secret"]["secretName"]
                found[mounts[volume["name"]]] = self.directory / "secrets" / secret
                self.write_secret(secret)
        return found

    def write_secret(self, name: str) -> None:
        """What the kubelet does when a secret is mounted, and when it changed."""
        directory = self.directory / "secrets" / name
        directory.mkdir(parents=True, exist_ok=True)
        for key, value in self.secrets[name].items():
            part = directory / f".{key}"
            part.write_text(value)
            part.rename(directory / key)

    def _write_executors(self) -> None:
        text = one(OVERLAY, "ConfigMap", "executors")["data"]["executors.json"]
        text = put(text, "http://agentctl-0.agentctl:39429", f"http://127.0.0.1:{self._daemon_port}")
        text = put(text, "/run/secrets/agentctl", str(self.directory / "secrets" / "agentctl-token"))
        text = put(text, "/workspaces", str(self.workspaces))
        text = put(text, "/home/tieline", str(self.directory / "home"))
        (self.directory / "etc").mkdir(exist_ok=True)
        (self.directory / "etc" / "executors.json").write_text(text)

    def _model(self) -> Process:
        args = ["--port", str(self._model_port)]
        return Process("tieline_ops.scripted_model", self.directory, args, name="model", timeout=60)

    def _daemon(self) -> Process:
        workload = one(OVERLAY, "StatefulSet", "agentctl")
        _, _, module, *args = _command(workload)
        given = environment(OVERLAY, workload)
        home = self.directory / "home"
        home.mkdir(exist_ok=True)
        secrets = self._mounted(workload)
        given = {key: self._here(value, secrets) for key, value in given.items()} | {
            "AGENTCTL_PORT": str(self._daemon_port),
            "AGENTCTL_INSTANCE_PORT_BASE": "0",
            "AGENTCTL_INSTANCE_PORT_MAX": "0",
            "AGENTCTL_LISTEN_HOST": "127.0.0.1",
            "AGENTCTL_WORKDIR": str(self.workspaces),
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SHELL": shutil.which("sh") or "/bin/sh",
        }
        return Process(
            module, self.directory, args, given, name="agentctl", ready_option="-ready-file", timeout=60
        )
