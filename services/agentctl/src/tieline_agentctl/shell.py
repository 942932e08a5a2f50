"""The one shell of an instance, on a terminal. It comes back when it ends, and says so first."""

import asyncio
import os
import shlex
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from tieline_agentctl import clock, groups, workspace_frames
from tieline_agentctl.decode import TextDecoder
from tieline_agentctl.hub import Hub
from tieline_agentctl.pty_file import PtyFile
from tieline_agentctl.ring import TailBuffer
from tieline_agentctl.scope import Scope
from tieline_agentctl.wall import now, now_ms

log = structlog.get_logger()

REPLAY = 16 * 1024
RESPAWN = 0.1
MOST_RESPAWN = 5.0
STOP_GRACE = 0.25
# The shell leads a session, so the terminal that it opens first becomes its controlling terminal.
_ON_TTY = 't=$1; shift; exec "$@" <>"$t" >&0 2>&1'


class ShellFailed(Exception):
    """The text is the wire's `error`."""


class Shell:
    """Started once, it runs until stopped; each time the program ends, another one starts."""

    def __init__(self, hub: Hub, cwd: Path, env: Mapping[str, str], command: str) -> None:
        self._hub = hub
        self.cwd = cwd
        self.env = dict(env)
        self._argv = shlex.split(command) or [_default_shell()]
        self._size = (80, 24)
        self._buffer = TailBuffer(REPLAY)
        self._pty: PtyFile | None = None
        self._early = bytearray()
        self._pid: int | None = None
        self._started_at = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def available(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self, tasks: Scope) -> None:
        """No effect on one that runs."""
        if self.available:
            return
        if not _executable(self._argv[0], self.env):
            raise ShellFailed(f"shell not found: {self._argv[0]}")
        if not self.cwd.is_dir():
            raise ShellFailed(f"not a directory: {self.cwd}")
        self._task = tasks.spawn(self._keep_running(), "shell")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            running = self._pid is not None
            task.cancel()
            await asyncio.wait([task])
            if running:
                self._hub.fact(workspace_frames.shell_exit(-1, now_ms()))
        self._early.clear()

    def type(self, data: str) -> bool:
        """False when it was not taken: no shell, or too much typed and not read."""
        if not self.available:
            return False
        text = data.encode("utf-8", "replace")
        if self._pty is not None:
            return self._pty.write(text)
        if len(self._early) + len(text) > 64 * 1024:
            return False
        self._early += text  # typed between two shells: for the next one, in order
        return True

    def resize(self, cols: int, rows: int) -> None:
        """Kept for the shells to come, too."""
        self._size = (cols, rows)
        if self._pty is not None:
            self._pty.resize(cols, rows)

    def buffer(self) -> str:
        return self._buffer.text()

    def status(self) -> dict[str, Any]:
        if not self.available:
            return {"available": False, "running": False, "error": "shell not available"}
        status: dict[str, Any] = {
            "available": True,
            "running": self._pid is not None,
            "shell": self._argv[0],
            "cwd": str(self.cwd),
        }
        if self._pid is not None:
            status |= {"pid": self._pid, "started_at": self._started_at}
        return status

    async def _keep_running(self) -> None:
        pause = RESPAWN
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                code = await self._run_once()
            except OSError as exc:
                log.error("the shell could not be started", error=str(exc))
                code = -1
            self._hub.fact(workspace_frames.shell_exit(code, now_ms()))
            log.info("the shell ended", code=code)
            # A shell that cannot live must not spin.
            pause = RESPAWN if loop.time() - began > 1.0 else min(pause * 2, MOST_RESPAWN)
            await asyncio.sleep(pause)

    async def _run_once(self) -> int:
        with PtyFile(*self._size) as pty:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                _ON_TTY,
                "sh",
                pty.name,
                *self._argv,
                cwd=self.cwd,
                env={"TERM": "xterm-256color", **self.env},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            self._pid, self._started_at = process.pid, clock.nano(now())
            self._pty = pty
            pty.write(bytes(self._early))
            self._early.clear()
            pump = asyncio.create_task(self._pump(pty), name="shell output")
            try:
                code = await process.wait()
                self._pid = None
                await groups.end_session(process.pid, signal.SIGHUP, STOP_GRACE)
                # All that was written before the end goes out before the end is told.
                pty.finish()
                await pump
            finally:
                self._pty = self._pid = None
                await asyncio.shield(_end(process))
                pump.cancel()
                await asyncio.wait([pump])
            return code if code >= 0 else -1

    async def _pump(self, pty: PtyFile) -> None:
        decoder = TextDecoder()
        while data := await pty.read():
            await self._say(decoder.feed(data))
        await self._say(decoder.finish())

    async def _say(self, text: str) -> None:
        if text:
            self._buffer.add(text)
            await self._hub.bulk(workspace_frames.frame("shell_output", now_ms(), data=text), len(text))


async def _end(process: asyncio.subprocess.Process) -> None:
    """The program is gone and reaped, its jobs with it."""
    if process.returncode is None:
        await groups.end_session(process.pid, signal.SIGHUP, STOP_GRACE)
    await process.wait()


def _default_shell() -> str:
    return "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"


def _executable(name: str, env: Mapping[str, str]) -> bool:
    if "/" in name:
        return os.access(name, os.X_OK)
    return any(
        os.access(Path(part) / name, os.X_OK) for part in env.get("PATH", os.defpath).split(os.pathsep)
    )
