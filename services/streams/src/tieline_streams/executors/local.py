"""A daemon of the session's own on this machine, in a process group of its own, that ends with its session.

It carries the session's id in its environment, so that a later process can tell it from whatever else the kernel
has given its number to.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import sys
from pathlib import Path

import structlog
from tieline_protocol import jsontext
from tieline_protocol.errors import BadMessage, Unavailable
from tieline_protocol.messages import InstanceRecord

from tieline_streams.config import LocalExecutor
from tieline_streams.executors import Direct, Wanted, control, marked

log = structlog.get_logger()

MARK = "TIELINE_SESSION"
_READY = 15.0
_GRACE = 12.0  # an agent that does not end when it is asked takes the daemon 9 s


class Local(Direct):
    def __init__(self, settings: LocalExecutor) -> None:
        self._settings = settings
        self._running: dict[str, tuple[asyncio.subprocess.Process, Path]] = {}

    async def open(self, wanted: Wanted) -> InstanceRecord:
        nonce = secrets.token_hex(16)
        directory = self._directory(wanted.session)
        try:
            _forget(directory)
            directory.mkdir(mode=0o700, parents=True)
        except OSError as exc:
            raise Unavailable(f"the daemon has no place for its files: {exc.strerror}") from exc
        ready = directory / "ready.json"
        argv = [*self._command(), "-port", "0", "-ready-file", str(ready)]
        try:
            with (directory / "agentctl.log").open("wb") as output:
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=self._environment(wanted, nonce),
                    cwd=wanted.workspace,
                    start_new_session=True,
                )
        except OSError as exc:
            _forget(directory)
            raise Unavailable(f"the daemon cannot be started: {exc.strerror}") from exc
        self._running[wanted.session] = (process, directory)
        try:
            url = await _ready_url(process, ready)
            token = await control.handshake(url, nonce)
            record = await control.create(url, token, wanted)
        except BaseException:
            await self._end(wanted.session)
            raise
        return record.model_copy(update={"pid": process.pid})

    async def exists(self, record: InstanceRecord, session: str) -> bool | None:
        return record.pid is not None and await asyncio.to_thread(is_ours, record.pid, session)

    async def close(self, record: InstanceRecord | None, session: str) -> None:
        if session in self._running:
            await self._end(session)
        elif record is not None and record.pid is not None:
            await _end_foreign(record.pid, session)
        await marked.end(MARK, session)
        _forget(self._directory(session))  # also what a process that was killed left

    def _directory(self, session: str) -> Path:
        return self._settings.directories / session

    async def _end(self, session: str) -> None:
        process, directory = self._running.pop(session)
        _signal_group(process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(_GRACE):
                await process.wait()
        except TimeoutError:
            log.warning("a local daemon did not end in time", session=session)
        finally:
            _signal_group(process.pid, signal.SIGKILL)
            await process.wait()
            _forget(directory)

    def _command(self) -> list[str]:
        first, *rest = self._settings.command
        return [sys.executable if first in ("python", "python3") else first, *rest]

    def _environment(self, wanted: Wanted, nonce: str) -> dict[str, str]:
        # What is ours (broker passwords among it) is not for agents.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIELINE_")}
        return {
            **inherited,
            "AGENTCTL_BOOTSTRAP_NONCE": nonce,
            "AGENTCTL_LISTEN_HOST": "127.0.0.1",
            "AGENTCTL_INSTANCE_PORT_BASE": "0",
            "AGENTCTL_INSTANCE_PORT_MAX": "0",
            "KANDEV_ACP_IDLE_TIMEOUT": "0",
            **self._settings.env,
            MARK: wanted.session,
        }


def _forget(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)


async def _ready_url(process: asyncio.subprocess.Process, ready: Path) -> str:
    try:
        async with asyncio.timeout(_READY):
            while not ready.exists():
                if process.returncode is not None:
                    raise Unavailable(f"the daemon ended at once with code {process.returncode}")
                await asyncio.sleep(0.02)
        return str(jsontext.loads(ready.read_bytes())["url"])
    except TimeoutError as exc:
        raise Unavailable(f"the daemon is not ready after {_READY:g} s") from exc
    except (BadMessage, KeyError, TypeError) as exc:
        raise Unavailable("the daemon's ready file says nothing") from exc


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def is_ours(pid: int, session: str) -> bool:
    """Whether a process is the daemon of a session and not another that was given its number."""
    try:
        return marked.carries(pid, MARK, session) and os.getpgid(pid) == pid
    except OSError:
        return False


async def _end_foreign(pid: int, session: str) -> None:
    """End a daemon that an earlier process of ours started."""
    if not is_ours(pid, session):
        return
    _signal_group(pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(_GRACE):
            while is_ours(pid, session):
                await asyncio.sleep(0.05)
    except TimeoutError:
        if is_ours(pid, session):
            _signal_group(pid, signal.SIGKILL)
