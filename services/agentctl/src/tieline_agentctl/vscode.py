"""VS Code for the workspace: runs `code-server` where it exists, and says clearly where it does not."""

import asyncio
import shutil
import signal
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import structlog

from tieline_agentctl import groups
from tieline_agentctl.scope import Scope

log = structlog.get_logger()

READY_WITHIN = 30.0
PROBE_EVERY = 0.5
STOP_GRACE = 2.0


class VsCodeFailed(Exception):
    """The text is the wire's `error`."""


class Stopping(VsCodeFailed):
    """A start while a stop is going on: 409."""


class VsCode:
    def __init__(self, command: tuple[str, ...], workspace: Path, env: Mapping[str, str]) -> None:
        self._command = command
        self._workspace = workspace
        self._env = dict(env)
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._stopping = False
        self.state = "stopped"
        self.error = ""
        self.port = 0

    def status(self) -> dict[str, Any]:
        body: dict[str, Any] = {"status": self.state}
        if self.port:
            body["port"] = self.port
        if self.error:
            body["error"] = self.error
        return body

    def start(self, tasks: Scope, theme: str = "") -> None:
        """Returns at once; how far it is shows in the status."""
        if self._stopping:
            raise Stopping("vscode is stopping")
        if self.state in ("installing", "starting", "running"):
            return
        program = shutil.which(self._command[0], path=self._env.get("PATH"))
        if program is None:
            self.state, self.error = "error", f"{self._command[0]} is not installed on this machine"
            raise VsCodeFailed(self.error)
        self.state, self.error, self.port = "installing", "", _free_port()
        self._watch = tasks.spawn(self._run([program, *self._command[1:]], theme), "vscode")

    async def stop(self) -> None:
        if self._watch is None:
            self.state, self.error, self.port = "stopped", "", 0
            return
        self._stopping = True
        try:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        finally:
            self._watch = None
            self._stopping = False
            self.state, self.error, self.port = "stopped", "", 0

    async def open_file(self, tasks: Scope, path: str, line: int, col: int) -> None:
        self.start(tasks)
        async with asyncio.timeout(READY_WITHIN):
            while self.state in ("installing", "starting"):
                await asyncio.sleep(PROBE_EVERY / 5)
        if self.state != "running":
            raise VsCodeFailed(self.error or "vscode is not running")
        where = f"{path}:{max(line, 1)}:{max(col, 1)}" if line or col else path
        process = await asyncio.create_subprocess_exec(
            *self._command,
            "--reuse-window",
            "--goto",
            where,
            cwd=self._workspace,
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(10):
                if await process.wait() != 0:
                    raise VsCodeFailed(f"{self._command[0]} could not open {path}")
        finally:
            if process.returncode is None:
                groups.signal_group(process.pid, signal.SIGKILL)
                await asyncio.shield(process.wait())

    async def _run(self, argv: list[str], theme: str) -> None:
        with tempfile.TemporaryDirectory(prefix="tieline-vscode-") as data:
            if theme:
                settings = Path(data) / "User" / "settings.json"
                settings.parent.mkdir(parents=True)
                settings.write_bytes(orjson.dumps({"workbench.colorTheme": theme}))
            try:
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    "--bind-addr",
                    f"127.0.0.1:{self.port}",
                    "--auth",
                    "none",
                    "--disable-telemetry",
                    "--disable-update-check",
                    "--user-data-dir",
                    data,
                    str(self._workspace),
                    cwd=self._workspace,
                    env=self._env,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as exc:
                self.state, self.error = "error", str(exc)
                return
            self.state = "starting"
            try:
                ready = asyncio.create_task(self._wait_ready(), name="vscode readiness")
                ended = asyncio.create_task(process.wait(), name="vscode end")
                try:
                    await asyncio.wait([ready, ended], return_when=asyncio.FIRST_COMPLETED)
                    if not ended.done():
                        if not ready.result():
                            self.state, self.error = "error", f"not ready within {READY_WITHIN:g} s"
                            return
                        self.state = "running"
                    code = await ended
                    self.state, self.error = "error", f"{argv[0]} ended with code {code}"
                finally:
                    ready.cancel()
                    ended.cancel()
                    await asyncio.wait([ready, ended])
            finally:
                await asyncio.shield(_end(process))

    async def _wait_ready(self) -> bool:
        for _ in range(int(READY_WITHIN / PROBE_EVERY)):
            try:
                async with asyncio.timeout(2):
                    reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.write(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
                    answered = await reader.readline()
                    writer.close()
                if answered.startswith(b"HTTP/"):
                    return True
            except (OSError, TimeoutError):
                pass
            await asyncio.sleep(PROBE_EVERY)
        return False


async def _end(process: asyncio.subprocess.Process) -> None:
    await groups.end_session(process.pid, signal.SIGTERM, STOP_GRACE)
    await process.wait()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
