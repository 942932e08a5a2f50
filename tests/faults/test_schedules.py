"""Random schedules on real processes: services killed and rolled, the broker restarted, links cut, viewers that lose
their connection, and work going on all the time. Whatever happens, a watcher who always resumes has every event once
and in order, or was told; afterwards a live viewer and a late one stand at the same place.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support import schedule
from tests.support.playing import World, compare, players, world

SESSIONS = 10  # a schedule each, side by side, under the same deaths
SECONDS = 8.0  # of trouble
REPLICAS = {"streams": 2, "gateway": 1}


async def play(world: World, round: int) -> None:
    """Ten schedules; raises an AssertionError that says what is wrong, by seed."""
    seeds = range(round * SESSIONS, (round + 1) * SESSIONS)
    deaths = schedule.deaths(round, SECONDS, world.stack.names("streams"), world.stack.names("gateway"))
    async with players(world, seeds) as playing:
        async with asyncio.TaskGroup() as group:
            dying = group.create_task(world.suffer(deaths), name="deaths")
            for player in playing:
                group.create_task(player.work(dying), name=f"work of {player.seed}")
                group.create_task(
                    player.suffer(schedule.troubles(player.seed, SECONDS)), name=f"trouble of {player.seed}"
                )
        began = time.monotonic()
        await asyncio.gather(*(player.settle() for player in playing))
        settled = time.monotonic() - began
        await compare(world, playing)

    wrong = [f"seed {player.seed}: {one}" for player in playing for one in player.wrong()]
    heard = Counter(event.type for player in playing for event in player.front.events)
    unclean = sum(
        event.body.get("clean") is False for player in playing for event in player.front.of("epoch")
    )
    happened = ", ".join(f"{step.what} {step.about}" for step in deaths)
    print(
        f"round {round} ({happened}): {len(seeds)} schedules, {heard.total():,} events, {heard['epoch']} openings "
        f"({unclean} not clean), {heard['gap']} gaps; slowest turn {max(one.slowest for one in playing):.1f} s, "
        f"settled after {settled:.1f} s; {len(wrong)} wrong"
    )
    assert wrong == []


@pytest.mark.timeout(150)
async def test_ten_schedules_lose_and_repeat_nothing_in_silence(tmp_path: Path) -> None:
    async with world(tmp_path, REPLICAS) as running:
        await play(running, 0)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("round", range(1, 11))
async def test_a_hundred_schedules_lose_and_repeat_nothing_in_silence(tmp_path: Path, round: int) -> None:
    async with world(tmp_path, REPLICAS) as running:
        await play(running, round)
