"""Processes of ours that outlived whoever started them, found again by a variable in their environment (Linux)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import structlog

log = structlog.get_logger()

_SWEEPS = 40


def carries(pid: int, name: str, value: str) -> bool:
    """Whether a process was started with a variable of this value."""
    try:
        return f"{name}={value}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\x00")
    except OSError:
        return False


def pids(name: str, value: str) -> list[int]:
    """All processes that carry the mark, wherever in the tree of processes they are."""
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [pid for pid in numbers if carries(pid, name, value)]


async def end(name: str, value: str) -> None:
    """Kill all that carry the mark."""
    for _ in range(_SWEEPS):
        found = await asyncio.to_thread(pids, name, value)
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.05)
    log.warning("processes that were left could not be ended", mark=f"{name}={value}")
