"""A command that forwards a local port to one on another machine, kept running and checked.

Its process group ends with us; what a killed process of ours left of it is found by its mark and ended before the
next one starts. The local port is the same for as long as a `Forward` lives, whatever becomes of its commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

import structlog
from tieline_protocol.errors import Unavailable

from tieline_streams.executors import control, marked

log = structlog.get_logger()

MARK = "TIELINE_TUNNEL"
_READY = 15.0  # s that a command may take until something answers
_LOOK = 0.1
_GRACE = 0.5
_FIRST, _MOST, _HEALTHY = 0.25, 5.0, 30.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Way:
    """`command` is the template; `host` and `port` are as seen from over there."""

    command: Sequence[str]
    session: str
    host: str
    port: int
    check_every: float
    check_timeout: float


class Forward:
    """Use as `async with`; entering the block starts it, and does not wait."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._state: asyncio.Queue[str] = (
            asyncio.Queue()
        )  # of the first command: empty once something answered
        self._task: asyncio.Task[None] | None = None
        self.starts = 0

    async def __aenter__(self) -> Forward:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"tunnel {self._way.session}")

    async def ready(self) -> None:
        """Wait until something answers through it. Raises Unavailable once a command has ended without that."""
        if why := await self._state.get():
            raise Unavailable(f"the tunnel cannot be made: {why}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        loop, wait = asyncio.get_running_loop(), _FIRST
        while True:
            began = loop.time()
            why = await self._once()
            log.info("a tunnel ended", session=self._way.session, why=why)
            self._tell(why)
            wait = _FIRST if loop.time() - began >= _HEALTHY else wait
            await asyncio.sleep(wait)
            wait = min(_MOST, wait * 2)

    def _tell(self, why: str) -> None:
        if self._state.empty():
            self._state.put_nowait(why)

    async def _once(self) -> str:
        """One command, until it ends or forwards nothing any more. Returns why that was."""
        self.starts += 1
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment(),
                start_new_session=True,
                preexec_fn=_end_with_us,
            )
        except OSError as exc:
            return f"its command cannot be started: {exc.strerror}"
        words = asyncio.create_task(_last_line(process.stderr), name="words of a tunnel")
        ended = asyncio.create_task(process.wait(), name="end of a tunnel")
        checked = asyncio.create_task(self._check(), name="checks of a tunnel")
        try:
            await asyncio.wait([ended, checked], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                return checked.result()
            await asyncio.wait([words], timeout=_GRACE)
            said = words.result() if words.done() else ""
            return f"its command ended with code {process.returncode}{f': {said}' if said else ''}"
        finally:
            checked.cancel()
            await _end(process)
            words.cancel()
            await asyncio.gather(words, ended, checked, return_exceptions=True)

    async def _check(self) -> str:
        """Look until nothing answers twice in a row; how long the first answer takes is the command's affair."""
        loop, way = asyncio.get_running_loop(), self._way
        until = loop.time() + _READY
        while not await control.answers(self.url, way.check_timeout):
            if loop.time() > until:
                return f"nothing answers through it after {_READY:g} s"
            await asyncio.sleep(_LOOK)
        self._tell("")
        failed = 0
        while failed < 2:
            await asyncio.sleep(way.check_every)
            failed = 0 if await control.answers(self.url, way.check_timeout) else failed + 1
        return "nothing answers through it any more"

    def _argv(self) -> list[str]:
        way = self._way
        values = {"{local}": self.port, "{host}": way.host, "{remote}": way.port, "{session}": way.session}
        words = list(way.command)
        for name, value in values.items():
            words = [word.replace(name, str(value)) for word in words]
        return words

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIELINE_")}
        return {**inherited, MARK: self._way.session}


async def end_left(session: str) -> None:
    """End the commands of a session that a killed process of ours left on this machine."""
    await marked.end(MARK, session)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _end_with_us() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def _last_line(stream: asyncio.StreamReader | None) -> str:
    last = b""
    while stream is not None and (chunk := await stream.read(4096)):
        last = (last + chunk)[-4096:]
    lines = last.decode(errors="replace").split("\n")
    return next((line.strip()[-300:] for line in reversed(lines) if line.strip()), "")


async def _end(process: asyncio.subprocess.Process) -> None:
    _signal(process.pid, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GRACE):
            await process.wait()
    _signal(process.pid, signal.SIGKILL)  # also what the command had started
    await process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
