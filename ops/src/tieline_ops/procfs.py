"""What /proc tells of processes. Elsewhere than on Linux there is nothing to see. Imports nothing that takes time."""

from __future__ import annotations

import os
from pathlib import Path


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat behind the command's name; [0] is the state. Empty: no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def started(pid: int) -> str:
    """Tells a process from a later one with its number; empty where there is none."""
    fields = _stat(pid)
    return fields[19] if len(fields) > 19 and fields[0] != "Z" else ""


def unit_of(pid: int) -> str:
    """The TIELINE_UNIT that a process was started with; empty where that cannot be read."""
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    found = [entry[13:] for entry in environ if entry.startswith(b"TIELINE_UNIT=")]
    return found[0].decode(errors="replace") if found else ""


def children(parent: int) -> list[int]:
    """The direct children of a process, zombies too."""
    if not Path("/proc/self/stat").exists():
        return []
    numbers = [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]
    return [pid for pid in numbers if (fields := _stat(pid)) and int(fields[1]) == parent]


def descendants(parent: int) -> set[int]:
    """Everything below a process that still runs."""
    found: set[int] = set()
    ahead = children(parent)
    while ahead:
        pid = ahead.pop()
        if pid not in found:
            found.add(pid)
            ahead += children(pid)
    return {pid for pid in found if started(pid)}
