"""Ending what a child left behind: its process group and its whole session. The owner awaits the child itself.

An interactive shell puts each job into a group of its own; they share the shell's session, so a session is what is
ended whole.
"""

import asyncio
import os
import signal
import time
from pathlib import Path


def members(session: int) -> list[int]:
    """The living processes of a session, zombies not counted."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            stat = (entry / "stat").read_bytes()
        except OSError:
            continue
        # pid (comm) state ppid pgrp session …; comm may hold blanks and brackets
        fields = stat[stat.rindex(b")") + 2 :].split()
        if int(fields[3]) == session and fields[0] not in (b"Z", b"X"):
            found.append(int(entry.name))
    return found


def signal_group(leader: int, number: signal.Signals) -> None:
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        pass


def signal_session(session: int, number: signal.Signals) -> int:
    """How many were there to be told."""
    pids = members(session)
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass
    return len(pids)


async def end_session(session: int, first: signal.Signals = signal.SIGTERM, grace: float = 0.25) -> None:
    """Nobody of this session is left when it returns: the first signal, `grace`, SIGKILL."""
    if not signal_session(session, first):
        return
    signal_session(session, signal.SIGCONT)  # a stopped job would not take the signal
    end = time.monotonic() + grace
    while time.monotonic() < end:
        if not members(session):
            return
        await asyncio.sleep(0.01)
    end = time.monotonic() + 2.0
    while signal_session(session, signal.SIGKILL) and time.monotonic() < end:
        await asyncio.sleep(0.01)
