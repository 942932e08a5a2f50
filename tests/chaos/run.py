"""One chaos: services are killed at random while people work, then left in peace; what happened is judged."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tieline_protocol import bus as bus_module
from tieline_protocol import subjects
from tieline_protocol.bus import BusSettings
from tieline_protocol.jetstream import Bucket

from tests.chaos.company import Company, company
from tests.chaos.figures import Held, of_process, of_service
from tests.support.eventually import eventually
from tests.support.model import model_server
from tests.support.playing import Player, World, compare, players, world

KINDS = ("streams", "gateway", "remotes", "agent")
REPLICAS = dict.fromkeys(KINDS, 2)
PAUSE = 2.0  # s between the prompts of a session
_SHELL = 1.0


@dataclass(slots=True)
class Outcome:
    """What is said in the end. `converged`: s from the last kill until everybody had worked once more."""

    sessions: int
    seconds: float
    kills: Counter[str] = field(default_factory=Counter)
    converged: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)  # the same, by who worked
    last: str = ""  # who was killed last
    trails: list[str] = field(default_factory=list)  # of those who were late
    events: int = 0
    openings: int = 0
    gaps: int = 0
    slowest: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    chats: int = 0
    leases: int = 0
    held: dict[str, tuple[Held, Held]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def leaks(self) -> list[str]:
        return [
            f"{kind}: {one}"
            for kind, (before, after) in self.held.items()
            for one in after.grown(before, stores=kind == "broker")
        ]

    def __str__(self) -> str:
        killed = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kills.items()))
        ends = ", ".join(f"{count} {how}" for how, count in self.calls.most_common())
        lines = [
            f"{self.seconds:.0f} s, {self.sessions} sessions, {self.kills.total()} kills ({killed})",
            f"converged {self.converged:.1f} s after the last one ({self.last}): "
            + ", ".join(f"{who} {seconds:.1f}" for who, seconds in self.parts.items()),
            *self.trails,
            f"{self.events:,} events, {self.openings} openings, {self.gaps} gaps; slowest turn {self.slowest:.1f} s",
            f"calls of a remote: {ends}; {self.chats} chat runs, one end each",
            *(f"{kind:<8} before: {before}; after: {after}" for kind, (before, after) in self.held.items()),
            f"{self.leases} leases of {sum(REPLICAS.values())} processes",
            *(f"WRONG {one}" for one in (*self.wrong, *self.leaks)),
        ]
        return "\n".join(lines)


async def chaos(directory: Path, seconds: float, sessions: int, seed: int) -> Outcome:
    outcome = Outcome(sessions, seconds)
    async with contextlib.AsyncExitStack() as stack:
        model = await stack.enter_async_context(model_server())
        options = {"agent": ["--openai-base-url", model.url, "--model", "m"]}
        around = await stack.enter_async_context(world(directory, REPLICAS, **options))
        playing = await stack.enter_async_context(players(around, range(sessions)))
        ports = around.stack.ports
        others = await stack.enter_async_context(
            company(around.stack.frontend("ada", ports[0]), around.stack.frontend("ada", ports[-1]))
        )
        before = await _held(around)
        outcome.converged = await _trouble(around, playing, others, outcome, seed)
        outcome.leases = await _leases(around)
        after = await _held(around)
        outcome.held = {kind: (before[kind], after[kind]) for kind in before}
        await compare(around, playing)
    _judge(outcome, playing, others)
    return outcome


async def _trouble(
    around: World, playing: list[Player], others: Company, outcome: Outcome, seed: int
) -> float:
    ended: dict[str, float] = {}

    async def timed(who: str, work: Coroutine[Any, Any, None]) -> None:
        await work
        ended[who] = max(ended.get(who, 0.0), time.monotonic())

    async with asyncio.TaskGroup() as group:
        killing = group.create_task(_kill(around, outcome, seed), name="kill")
        for player in playing:
            work = timed("sessions", player.work(killing, PAUSE))
            group.create_task(work, name=f"work of {player.seed}")
            group.create_task(_write(player, killing), name=f"shell of {player.seed}")
        group.create_task(others.work(killing, timed), name="remote and chat")
        last = await killing
    await asyncio.gather(*(timed("shells", player.settle()) for player in playing))
    outcome.parts = {who: at - last for who, at in ended.items()}
    latest = max(playing, key=lambda player: player.trail[-1][0])
    outcome.trails = [
        f"{who}: {trail.since(last)}"
        for who, trail in (("chat", others.trail), ("latest session", latest.trail))
    ]
    return max(outcome.parts.values())


async def _kill(around: World, outcome: Outcome, seed: int) -> float:
    """Any process, again and again; what keeps services alive starts it again. Returns when the last kill was, which
    takes a replica of each kind along: whatever the choice was before, no end is easier than another.
    """
    chance = random.Random(seed)
    until = time.monotonic() + outcome.seconds
    names = list(around.stack.services)
    starting: dict[str, asyncio.Task[None]] = {}
    async with asyncio.TaskGroup() as group:
        while True:
            await asyncio.sleep(chance.uniform(0.3, 2.5))
            enough = time.monotonic() > until
            chosen = (
                [chance.choice(around.stack.names(kind)) for kind in KINDS]
                if enough
                else [chance.choice(names)]
            )
            chosen = [name for name in chosen if name not in starting or starting[name].done()]  # not dead
            if enough and len(chosen) < len(KINDS):
                continue
            last = time.monotonic()
            for name in chosen:
                await around.stack.kill(name)
                outcome.kills[name.partition("-")[0]] += 1
                starting[name] = group.create_task(around.stack.start(name), name=f"start {name}")
            outcome.last = ", ".join(chosen)
            if enough:
                return last


async def _write(player: Player, enough: asyncio.Future[float]) -> None:
    while not enough.done():
        player.worker.write(3)
        await asyncio.wait([enough], timeout=_SHELL)


async def _held(around: World) -> dict[str, Held]:
    services = around.stack.services
    found = {kind: await of_service([services[name] for name in around.stack.names(kind)]) for kind in KINDS}
    assert around.nats is not None
    return {**found, "broker": of_process(around.nats.pid), "daemon": Held(0, around.daemon.open_sockets)}


async def _leases(around: World) -> int:
    """How many process leases there are, once those of the dead have had the time to expire."""
    assert around.nats is not None
    async with bus_module.connect(BusSettings(around.nats.url, "test")) as bus:
        bucket = Bucket(bus, subjects.BUCKET_PROCESSES)

        async def count() -> int:
            return len(await bucket.entries(subjects.process_key("*")))

        with contextlib.suppress(AssertionError):

            async def expired() -> bool:
                return await count() == sum(REPLICAS.values())

            await eventually(expired, 15, 0.5)
        return await count()


def _judge(outcome: Outcome, playing: list[Player], others: Company) -> None:
    events = [event for player in playing for event in player.front.events]
    outcome.events = len(events)
    outcome.openings = sum(event.type == "epoch" for event in events)
    outcome.gaps = sum(event.type == "gap" for event in events)
    outcome.slowest = max(player.slowest for player in playing)
    outcome.calls, outcome.chats = others.outcomes, len(others.ended())
    outcome.wrong = [f"seed {player.seed}: {one}" for player in playing for one in player.wrong()]
    outcome.wrong += others.wrong()
    if outcome.leases != sum(REPLICAS.values()):
        outcome.wrong.append(f"there are {outcome.leases} leases")
