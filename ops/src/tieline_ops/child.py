"""One child process: a process group of its own, a log file, and an end that is waited for without a thread.

A child dies with us, however we die: the kernel sees to it (Linux), or the child reads the lifeline.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tieline_ops.layout import Start

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _die_with(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it was too late already
                os._exit(1)

    return prepare


class Child:
    """A running process. `code` is None until it has ended; negative: the signal that ended it."""

    def __init__(self, start: Start, log: Path, *, pass_fds: Sequence[int] = (), mortal: bool = True) -> None:
        """`mortal`: SIGKILL when we die. Not for what has something to tidy up and reads the lifeline instead."""
        with log.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                start.command,
                env=dict(start.env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=pass_fds,
                preexec_fn=_die_with(os.getpid()) if mortal else None,
            )
        self.pid = self._process.pid
        self._log = log
        self._ended = asyncio.Event()
        self._pidfd: int | None = None
        if hasattr(os, "pidfd_open"):
            self._pidfd = os.pidfd_open(self.pid)
            asyncio.get_running_loop().add_reader(self._pidfd, self._on_end)

    @property
    def code(self) -> int | None:
        return self._process.returncode

    def _on_end(self) -> None:
        if self._process.poll() is not None:
            if self._pidfd is not None:
                asyncio.get_running_loop().remove_reader(self._pidfd)
                os.close(self._pidfd)
                self._pidfd = None
            self._ended.set()

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        while self._pidfd is None and self._process.poll() is None:
            await asyncio.sleep(0.05)  # a system without pidfds
        if self._process.returncode is None:
            await self._ended.wait()
        self._on_end()
        assert self._process.returncode is not None
        return self._process.returncode

    async def stop(self, grace: float) -> int:
        """SIGTERM; after `grace` seconds SIGKILL to the whole group, which also ends what it left behind."""
        if self.code is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.send_signal(signal.SIGCONT)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wait(), grace)
        self.kill()
        return await self.wait()

    def kill(self) -> None:
        """SIGKILL to the group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def last_words(self) -> list[str]:
        """The end of what it wrote since its start, in whole lines."""
        with self._log.open("rb") as file:
            begin = max(self._log_start, os.fstat(file.fileno()).st_size - 65_536)
            file.seek(begin)
            lines = file.read().decode(errors="replace").splitlines()
        return lines if begin == self._log_start else lines[1:]
