"""Processes that lost their parent: found, ended, reaped.

We are the reaper of our descendants: what a killed service leaves behind becomes our child instead of init's.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable

from tieline_ops.procfs import children, descendants, started

_PR_SET_CHILD_SUBREAPER = 36


def become_reaper() -> None:
    """From now on, for this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


async def sweep(ours: Callable[[int], bool], grace: float) -> int:
    """End the orphans that `ours` picks from our children, and everything below them. Returns how many there were."""
    until = time.monotonic() + grace
    ended: set[int] = set()
    while True:
        orphans = [pid for pid in children(os.getpid()) if ours(pid)]
        running = {below for pid in orphans for below in descendants(pid) | {pid} if started(below)}
        for pid in orphans:
            _reap(pid)
        if not running:
            return len(ended)
        number = signal.SIGTERM if time.monotonic() < until else signal.SIGKILL
        for pid in running if number is signal.SIGKILL else running - ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        ended |= running
        await asyncio.sleep(0.02)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
