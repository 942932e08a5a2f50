"""How long sessions are without an owner when theirs stops or is killed: from the signal until both sockets of every
one of its sessions are up again, at the daemon.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.playing import World, compare, players, world

SESSIONS = 20
TIMES = 3
REPLICAS = {"streams": 2, "gateway": 1}


def held(world: World) -> int:
    """Sockets that daemons hold."""
    return sum(
        len(streams) > 0 and not streams[-1].closed.is_set()
        for worker in world.daemon.of.values()
        for streams in (worker.agent, worker.workspace)
    )


async def take_over(world: World, name: str, number: signal.Signals) -> tuple[float, int]:
    """Milliseconds until all sessions are served again, and how many changed hands."""
    dials = sum(worker.dials["agent"] for worker in world.daemon.of.values())
    process = world.stack.services[name]
    began = time.monotonic()
    process.signal(number)
    await eventually(lambda: held(world) < 2 * SESSIONS, 10, 0.001)
    await eventually(lambda: held(world) == 2 * SESSIONS, 30, 0.002)
    took = (time.monotonic() - began) * 1_000
    await process.wait(20)
    await world.stack.start(name)
    return took, sum(worker.dials["agent"] for worker in world.daemon.of.values()) - dials


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("number", "most"), [(signal.SIGTERM, 1_000), (signal.SIGKILL, 10_000)], ids=["SIGTERM", "SIGKILL"]
)
async def test_sessions_are_served_again_soon(tmp_path: Path, number: signal.Signals, most: float) -> None:
    async with world(tmp_path, REPLICAS) as running, players(running, range(SESSIONS)) as playing:
        found = []
        for turn in range(TIMES):  # in turns, since whoever stays has all of them
            name = running.stack.names("streams")[turn % 2]
            found.append(await take_over(running, name, number))
        for player in playing:
            await player.prompt("say 3", "m0")
            await player.settle()
        await compare(running, playing)

    times = " ".join(f"{took:.0f} ms for {sessions} sessions;" for took, sessions in found)
    print(f"{number.name}: {times} at most {most:,.0f} on a machine of its own")
    assert [one for player in playing for one in player.wrong()] == []
    assert max(took for took, _ in found) < 3 * most
