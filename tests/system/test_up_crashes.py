"""A crash of streams under `tieline up`: what its sessions had goes on with the next one, and nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.frontend import Frontend
from tests.support.system import System


def daemons(system: System) -> list[int]:
    """Of local sessions: they carry their session's id, and lead a process group."""
    found = []
    for pid in system.processes():
        with contextlib.suppress(OSError):
            mine = b"\0TIELINE_SESSION=" in Path(f"/proc/{pid}/environ").read_bytes()
            if (
                mine
                and os.getpgid(pid) == pid
                and b"-ready-file" in Path(f"/proc/{pid}/cmdline").read_bytes()
            ):
                found.append(pid)
    return found


async def killed(system: System) -> None:
    """Kill streams and wait for the next one."""
    old = system.now()["pids"]["streams"]
    os.kill(old, signal.SIGKILL)
    await eventually(lambda: system.now()["pids"]["streams"] != old, 20)


@pytest.mark.timeout(60)
async def test_sessions_live_on_when_streams_crashes_and_ctrl_c_still_leaves_nothing(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        async with Frontend(system.url, system.token()) as front:
            session = await front.open(executor="local")
            await front.watch(session)
            await front.ask("shell.input", session, data="KEPT=4$((1))2\n")
            await front.ask("agent.prompt", session, text="say before\nask May I\nsay after")
            await front.until("permission_request")
            before = daemons(system)

            await killed(system)
            await front.until("epoch", 2, timeout=25)
            await front.allow(session)
            ended = await front.until_ended()
            await front.ask("shell.input", session, data="echo seen-$KEPT\n")
            await front.until_screen("seen-412")
            after = daemons(system)
        system.signal(signal.SIGINT)
        code = await system.wait(20)

        assert len(before) == 1
        assert after == before
        assert ended.body["reason"] == "end_turn"
        assert front.text() == "beforeallowafter"
        assert code == 0
        assert system.processes() == {}


@pytest.mark.long
@pytest.mark.timeout(60)
async def test_a_session_that_opened_while_streams_crashed_leaves_no_daemon(tmp_path: Path) -> None:
    async with System(tmp_path) as system, Frontend(system.url, system.token()) as front:
        opening = asyncio.create_task(front.open(executor="local"))
        await eventually(lambda: daemons(system), 10)
        await killed(system)
        await eventually(lambda: not daemons(system), 25)
        opening.cancel()
        await asyncio.wait([opening])
