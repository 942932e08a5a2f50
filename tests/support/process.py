"""A service as people run it: `python -m tieline_…` as a process, ready before the test goes on, gone after it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from tests.support.nats_server import die_with_parent


class Process:
    """Use as `async with Process("tieline_gateway", tmp_path, ["--port", "0"]) as gateway`.

    `facts` is what it wrote into its ready file. A failing test shows the end of its log. It is given SIGTERM when
    the block is left, SIGKILL when that does not help; `ready=False` starts it and does not wait.
    """

    def __init__(
        self,
        module: str,
        directory: Path,
        args: list[str] | None = None,
        env: dict[str, str] | None = None,
        *,
        name: str | None = None,
        ready: bool = True,
        timeout: float = 20,
        ready_option: str = "--ready-file",
    ) -> None:
        self.name = name or module
        self.facts: dict[str, Any] = {}
        self._args = [sys.executable, "-m", module, *(args or [])]
        self._env = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        self._directory = directory
        self._ready = ready
        self._timeout = timeout
        self._ready_option = ready_option
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self.ready_file = directory / f"{self.name}.ready"

    @property
    def started(self) -> bool:
        """Whether it was ever started; it may have ended."""
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs. -9 after a SIGKILL."""
        assert self._process is not None, "not started"
        return self._process.poll()

    @property
    def log_path(self) -> Path:
        return self._directory / f"{self.name}.log"

    @property
    def log(self) -> str:
        """All that it has written."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    async def start(self) -> None:
        """Start (again) and wait for the ready file."""
        assert self._process is None or self.code is not None, "already running"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._starts += 1
        self.ready_file = self._directory / f"{self.name}.{self._starts}.ready"
        self._process = self._spawn([*self._args, self._ready_option, str(self.ready_file)])
        if self._ready:
            await self.wait_ready()

    async def wait_ready(self) -> None:
        """Wait until the ready file is there. An AssertionError shows the log."""
        try:
            async with asyncio.timeout(self._timeout):
                while not self.ready_file.exists():
                    assert self.code is None, f"{self.name} ended with {self.code}:\n{self.tail()}"
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{self.name} is not ready:\n{self.tail()}") from None
        self.facts = json.loads(self.ready_file.read_text())

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                command,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                preexec_fn=die_with_parent,
            )

    def signal(self, number: signal.Signals) -> None:
        """SIGTERM, SIGKILL, SIGSTOP, SIGCONT, …"""
        assert self._process is not None, "not started"
        self._process.send_signal(number)

    async def wait(self, timeout: float = 8) -> int:
        """Wait for its end; returns the exit code."""
        try:
            async with asyncio.timeout(timeout):
                while (code := self.code) is None:
                    await asyncio.sleep(0.01)
                return code
        except TimeoutError:
            raise AssertionError(f"{self.name} does not end:\n{self.tail()}") from None

    async def stop(self, timeout: float = 8) -> int:
        """SIGTERM, and its exit code."""
        self.signal(signal.SIGTERM)
        return await self.wait(timeout)

    async def kill(self) -> None:
        """SIGKILL."""
        self.signal(signal.SIGKILL)
        await self.wait()

    def tail(self, size: int = 8_000) -> str:
        """The end of its log."""
        return self.log[-size:]

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        await self._end()
        if exc is not None:
            exc.add_note(f"--- the log of {self.name} ends:\n{self.tail()}")

    async def _end(self) -> None:
        if self._process is None:
            return
        if self.code is None:
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)
            try:
                await self.wait(5)
            except AssertionError:
                self.signal(signal.SIGKILL)
        self._process.wait()
