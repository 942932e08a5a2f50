"""Many tabs of one user, back at once while their session changes hands."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

from tests.support.oracle import in_order
from tests.support.playing import START, insist, players, world
from tests.support.watching import seen

TABS = 10


@pytest.mark.timeout(90)
async def test_ten_tabs_that_resume_a_session_at_once_cause_one_resumption_and_are_all_served(
    tmp_path: Path,
) -> None:
    """B84: two replicas, one of them the dead owner's successor; the agent was started anew meanwhile."""
    async with (
        world(tmp_path, {"streams": 2, "gateway": 1}) as running,
        players(running, [0]) as (player,),
        contextlib.AsyncExitStack() as stack,
    ):
        worker = player.worker
        tabs = [await stack.enter_async_context(running.stack.frontend(player.user)) for _ in range(TABS)]
        worker.pid += 1
        await asyncio.gather(*(running.stack.kill(name) for name in running.stack.names("streams")))
        began = time.monotonic()
        asking = [
            insist(lambda tab=tab: tab.ask("agent.permissions.list", player.session))  # type: ignore[misc]
            for tab in tabs
        ]
        watching = [tab.watch(player.session, cursors=START) for tab in tabs]
        starting = [running.stack.start(name) for name in running.stack.names("streams")]
        await asyncio.gather(*starting, *watching, *asking)
        took = time.monotonic() - began
        await player.prompt("say 3", "m0")
        for tab in tabs:
            await tab.until("turn", state="ended", timeout=20)
        held = running.daemon.open_sockets

    print(f"{TABS} tabs served {took:.1f} s after both replicas were killed")
    assert (worker.dials["agent"], worker.dials["workspace"], worker.loads) == (2, 2, 1)
    assert held <= 2 + 8  # the two sockets, and what is kept for HTTP
    logs = [seen(tab.events, "agent") for tab in tabs]
    assert [in_order(log) for log in logs] == [[]] * TABS
    assert {tab.text() for tab in tabs} == {worker.said}
