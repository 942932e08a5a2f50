"""Three brokers, the leader of a log killed under load: what was acknowledged is there, nothing is seen twice, and an
owner that had to stop takes its sessions again by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tieline_protocol import bus as bus_module
from tieline_protocol import messages, subjects
from tieline_protocol.bus import Bus, BusSettings
from tieline_protocol.errors import TielineError

from tests.support.cluster import Cluster
from tests.support.playing import Player, compare, players, world_at
from tests.support.watching import seen

SESSIONS = 4
LOGS = ("agent", "workspace")
Place = tuple[str, str, int]  # session, log, epoch


async def ask_heads(bus: Bus, playing: Sequence[Player], confirmed: dict[Place, int]) -> None:
    """How far the owners say that their logs are confirmed, again and again."""

    async def ask(player: Player) -> None:
        subject = subjects.command(player.user, player.session, subjects.HEAD)
        try:
            told = messages.outcome((await bus.request(subject, b"", 1)).data)
        except TielineError:
            return  # nobody knows right now
        for log, head in told.items():
            place = (player.session, log, head["epoch"])
            confirmed[place] = max(confirmed[place], head["confirmed"])

    while True:
        await asyncio.gather(*(ask(player) for player in playing))
        await asyncio.sleep(0.05)


def missing(playing: Sequence[Player], confirmed: dict[Place, int]) -> list[str]:
    """What was confirmed and is not in the log as a late viewer reads it."""
    found = []
    for player in playing:
        assert player.late is not None
        for log in LOGS:
            there = {
                one.place for one in seen(player.late.events, log) if one.body.get("reason") != "retention"
            }
            found += [
                f"{session} {log} {(epoch, offset)}"
                for (session, of, epoch), last in confirmed.items()
                if (session, of) == (player.session, log)
                for offset in range(1, last + 1)
                if (epoch, offset) not in there
            ]
    return found


async def kill_leaders(cluster: Cluster, bus: Bus, times: int) -> list[float]:
    """One after the other, each back before the next; how long the log had no leader."""
    away = []
    streams = (
        subjects.STREAM_AGENT,
        subjects.bucket_stream(subjects.BUCKET_PROCESSES),  # without it no lease is renewed
        subjects.STREAM_WORKSPACE,
    )
    for number in range(times):
        stream = streams[number % len(streams)]
        leader = await cluster.leader(bus, stream)
        began = time.monotonic()
        await cluster.nodes[leader].kill()
        while await cluster.leader(bus, stream) == leader:
            await asyncio.sleep(0.05)
        away.append(time.monotonic() - began)
        await asyncio.sleep(1)  # of work without it
        await cluster.nodes[leader].start()
        await cluster.whole(bus, stream)
    return away


async def play(directory: Path, kills: int) -> None:
    replicas = {"streams": 1, "gateway": 1}
    async with (
        Cluster(directory / "nats") as cluster,
        world_at(cluster.url, directory, replicas, streams=["--replicas", "3"]) as world,
        bus_module.connect(BusSettings(cluster.url, "test")) as bus,
        players(world, range(SESSIONS)) as playing,
    ):
        confirmed: dict[Place, int] = defaultdict(int)
        asking = asyncio.create_task(ask_heads(bus, playing, confirmed), name="heads")
        async with asyncio.TaskGroup() as group:
            killing = group.create_task(kill_leaders(cluster, bus, kills), name="kill")
            for player in playing:
                group.create_task(player.work(killing), name=f"work of {player.seed}")
                group.create_task(write(player, killing.done), name=f"shell of {player.seed}")
        began = time.monotonic()
        await asyncio.gather(*(player.settle() for player in playing))
        settled = time.monotonic() - began
        asking.cancel()
        await asyncio.wait([asking])
        await compare(world, playing)
        alive = world.stack.services["streams"].code is None

    lost = missing(playing, confirmed)
    wrong = [f"seed {player.seed}: {one}" for player in playing for one in player.wrong()]
    events = sum(len(player.front.events) for player in playing)
    stops = sum(len({one.epoch for one in seen(player.front.events, "agent")}) - 1 for player in playing)
    away = " ".join(f"{seconds:.1f}" for seconds in killing.result())
    print(
        f"{kills} leaders killed, no leader for {away} s: {events:,} events, {sum(confirmed.values()):,} seen "
        f"acknowledged, {len(lost)} of them lost, owners stopped {stops} times for {SESSIONS} sessions and took them "
        f"again; slowest turn {max(one.slowest for one in playing):.1f} s, settled after {settled:.1f} s"
    )
    assert lost == []
    assert wrong == []
    assert alive


async def write(player: Player, enough: Callable[[], bool]) -> None:
    """Output of a shell, all the time."""
    while not enough():
        player.worker.write(5)
        await asyncio.sleep(0.02)


@pytest.mark.timeout(120)
async def test_a_leader_that_is_killed_takes_nothing_acknowledged_along(tmp_path: Path) -> None:
    await play(tmp_path, 1)


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_five_leaders_that_are_killed_take_nothing_acknowledged_along(tmp_path: Path) -> None:
    await play(tmp_path, 5)
