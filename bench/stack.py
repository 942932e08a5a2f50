"""The shipped processes, started for a measurement: a real broker, streams, gateway; and what a user signs in with."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import psutil
from tieline_ops import broker

from bench.rawviewer import RawViewer
from bench.workers import BenchError, Worker, worker

_START = 20.0


@dataclass(slots=True)
class Process:
    """A process of the system, and the CPU time that it has used."""

    name: str
    handle: subprocess.Popen[bytes]
    log: Path

    @property
    def cpu(self) -> float:
        times = psutil.Process(self.handle.pid).cpu_times()
        return float(times.user + times.system)

    @property
    def rss(self) -> int:
        return int(psutil.Process(self.handle.pid).memory_info().rss)


class Stack:
    """Where everything is. Leaving `stack()` ends all of it."""

    def __init__(self, folder: Path, exits: contextlib.ExitStack) -> None:
        self.folder = folder
        self._exits = exits
        self._secret = secrets.token_hex(32)
        self.nats: Process | None = None
        self.processes: list[Process] = []
        self.gateway_url = ""
        (folder / "secret").write_text(self._secret)

    def token(self, user: str) -> str:
        """What `user` signs in with."""
        now = int(time.time())
        return jwt.encode({"sub": user, "iat": now, "exp": now + 3_600}, self._secret, "HS256")

    def viewer(self, user: str, buffer: int = 65_536) -> RawViewer:
        """A connection of `user`'s, signed in."""
        viewer = RawViewer(self.gateway_url, buffer=buffer)
        self._exits.callback(viewer.close)
        viewer.request("auth", {"token": self.token(user)})
        return viewer

    def worker(self, module: str) -> Worker:
        """A process that takes part in the measurement."""
        return self._exits.enter_context(worker(f"bench.{module}", self.folder))

    def start_nats(self) -> None:
        """A broker as the system starts it; its address becomes TIELINE_NATS_URL for all others."""
        config = self.folder / "nats.conf"
        config.write_text(broker.config(-1, str(self.folder / "jetstream"), str(self.folder)))
        binary = shutil.which(
            "nats-server", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
        )
        if binary is None:
            raise BenchError("no nats-server: make setup")
        self._start("nats", [binary, "-c", str(config)])
        ports = self._wait_for(lambda: next(iter(self.folder.glob("nats-server_*.ports")), None), "nats")
        os.environ["TIELINE_NATS_URL"] = json.loads(ports.read_text())["nats"][0]

    def start_gateway(self) -> Process:
        ready = self._service(
            "gateway", "--port", "0", "--jwt-secret-file", str(self.folder / "secret"), "--allow-no-origin"
        )
        self.gateway_url = ready["url"]
        return self.processes[-1]

    def start_streams(self, control_urls: Mapping[str, str]) -> Process:
        """Streams, with an executor for each scripted daemon."""
        token, work, path = self.folder / "token", self.folder / "work", self.folder / "executors.json"
        token.write_text("bench")
        work.mkdir(exist_ok=True)
        executors = {
            name: {
                "kind": "static",
                "control_url": url,
                "token_file": str(token),
                "root": str(work),
                "routes": "field",
            }
            for name, url in control_urls.items()
        }
        path.write_text(json.dumps({"executors": executors, "agents": {"bench": {"command": ["bench"]}}}))
        self._service("streams", "--executors-file", str(path))
        return self.processes[-1]

    def start_remotes(self) -> Process:
        self._service("remotes")
        return self.processes[-1]

    def start_agent(self, model_url: str) -> Process:
        """The agent service, with a model that speaks OpenAI's protocol at `model_url`."""
        self._service("agent", "--openai-base-url", model_url, "--model", "bench")
        return self.processes[-1]

    def _service(self, name: str, *knobs: str) -> dict[str, Any]:
        number = len(self.processes)
        ready = self.folder / f"{name}-{number}.ready"
        command = [sys.executable, "-m", f"tieline_{name}", *knobs, "--ready-file", str(ready)]
        self._start(name, [*command, "--log-level", "warning"])
        path = self._wait_for(lambda: ready if ready.exists() else None, name)
        facts: dict[str, Any] = json.loads(path.read_text())
        return facts

    def _start(self, name: str, command: list[str]) -> None:
        log = self.folder / f"{name}-{len(self.processes)}.log"
        with log.open("wb") as output:
            handle = subprocess.Popen(command, stdout=output, stderr=output)
        process = Process(name, handle, log)
        self.processes.append(process)
        self._exits.callback(self.stop, process)

    def stop(self, process: Process) -> None:
        """End one process; twice does nothing."""
        if process not in self.processes:
            return
        self.processes.remove(process)
        process.handle.terminate()
        try:
            process.handle.wait(10)
        except subprocess.TimeoutExpired:
            process.handle.kill()
            process.handle.wait()

    def _wait_for(self, look: Any, name: str) -> Path:
        until = time.monotonic() + _START
        process = self.processes[-1]
        while time.monotonic() < until:
            found: Path | None = look()
            if found is not None and found.stat().st_size:
                return found
            if process.handle.poll() is not None:
                raise BenchError(f"{name} ended: {process.log.read_text(errors='replace')[-2_000:]}")
            time.sleep(0.01)
        raise BenchError(
            f"{name} was not ready in {_START:g} s: {process.log.read_text(errors='replace')[-2_000:]}"
        )

    def usage(self) -> dict[str, float]:
        """CPU seconds of each process of the system so far."""
        return {process.name: process.cpu for process in self.processes}


def allow_files(wanted: int) -> None:
    """Let this process and those it starts open that many files. Raises BenchError where the machine does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise BenchError(f"at most {hard} open files are allowed here; {wanted} are needed")
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextlib.contextmanager
def stack(folder: Path) -> Iterator[Stack]:
    """A system with its broker; services are started on it as a measurement needs them."""
    folder.mkdir(parents=True)
    before = os.environ.get("TIELINE_NATS_URL")
    with contextlib.ExitStack() as exits:
        started = Stack(folder, exits)
        started.start_nats()
        yield started
    if before is None:
        os.environ.pop("TIELINE_NATS_URL", None)
    else:
        os.environ["TIELINE_NATS_URL"] = before
