"""Schedules played on real processes: services behind links with a scripted daemon here, users who work and watch,
and what befalls them (schedule.py). What they saw is judged by oracle.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tieline import TielineError
from tieline_protocol.cursor import Cursor, Position
from tieline_protocol.frontend import VALUE_TYPES

from tests.support import schedule
from tests.support.frontend import Frontend
from tests.support.link import Link
from tests.support.nats_server import NatsServer
from tests.support.oracle import agree, in_order, of_one_text, one_end_each, pieces, same_state
from tests.support.schedule import Step
from tests.support.stack import Stack
from tests.support.watching import seen
from tests.support.workers import Worker, Workers

T = TypeVar("T")

START = {"agent": "start", "workspace": "start"}
_PASSING = ("disconnected", "unavailable", "timeout", "conflict")
_AGAIN = 0.2
_EVERY = 0.03
_ENDED = 60.0  # s, of whatever is waited for


class World:
    """The processes, the daemon, and the broker with a link before it, where there is but one."""

    def __init__(
        self, stack: Stack, daemon: Workers, nats: NatsServer | None = None, broker: Link | None = None
    ) -> None:
        self.stack = stack
        self.daemon = daemon
        self.nats = nats
        self.broker = broker

    async def suffer(self, steps: Sequence[Step]) -> None:
        """One death after the other; whatever dies is started again at once, and is ready before the next."""
        for step in steps:
            await asyncio.sleep(step.wait)
            match step.what:
                case "kill":
                    await self.stack.replace(step.about)
                case "roll":
                    await self.stack.roll(step.about)
                case "restart":
                    assert self.nats is not None
                    await self.nats.restart(kill=True)
                case "cut":
                    assert self.broker is not None
                    self.broker.cut()


@contextlib.asynccontextmanager
async def world(directory: Path, replicas: dict[str, int], **options: Sequence[str]) -> AsyncIterator[World]:
    """Everything, running, with one broker behind a link."""
    async with (
        NatsServer(directory / "nats") as nats,
        Link("127.0.0.1", nats.port) as broker,
        world_at(f"nats://127.0.0.1:{broker.port}", directory, replicas, **options) as made,
    ):
        made.nats, made.broker = nats, broker
        yield made


@contextlib.asynccontextmanager
async def world_at(
    broker: str, directory: Path, replicas: dict[str, int], **options: Sequence[str]
) -> AsyncIterator[World]:
    """Everything but the broker."""
    async with Workers() as daemon:
        token_file = directory / "scripted-token"
        token_file.write_text(daemon.script.token)
        control = (daemon.control_url, token_file)
        made = Stack(directory / "stack", broker=broker, control=control, replicas=replicas, options=options)
        async with made as stack:
            yield World(stack, daemon)


class Trail(deque[tuple[float, str]]):
    """What somebody did last, and when, for whoever asks why it took so long."""

    def __init__(self) -> None:
        super().__init__(maxlen=12)

    def note(self, what: str) -> None:
        self.append((time.monotonic(), what))

    def since(self, began: float) -> str:
        return ", ".join(f"{what} {at - began:+.1f}" for at, what in self)


async def insist(work: Callable[[], Awaitable[T]], trail: Trail | None = None) -> T:
    """As a user's page does: what was lost on the way is asked again. The answer."""
    refused: TielineError | None = None
    try:
        async with asyncio.timeout(_ENDED):
            while True:
                try:
                    return await work()
                except TielineError as exc:
                    if exc.code not in _PASSING:
                        raise
                    refused = exc
                    if trail is not None:
                        trail.note(exc.code)
                await asyncio.sleep(_AGAIN)
    except TimeoutError:
        raise AssertionError(f"for {_ENDED:g} s in vain: {refused}") from refused


class Player:
    """One session and its user, who comes back by cursor whenever the connection is lost."""

    def __init__(self, world: World, seed: int, user: str, front: Frontend, link: Link) -> None:
        self.world = world
        self.seed = seed
        self.user = user
        self.front = front
        self.link = link
        self.session = ""
        self.asked: list[str] = []
        self.slowest = 0.0  # s from a prompt to its end
        self.trail = Trail()
        self.late: Frontend | None = None
        self.newcomer: Frontend | None = None
        self._looked = 0  # events of the front's that were looked at
        self._ended: set[int] = set()  # generations of turns
        self._open: list[dict[str, Any]] = []  # permissions, as the screen shows them
        self._last_line = ""

    @property
    def worker(self) -> Worker:
        return self.world.daemon.of[self.session]

    async def open(self) -> None:
        self.session = await self.front.open()
        await self.front.watch(self.session, cursors=START)

    async def work(self, enough: asyncio.Future[Any], pause: float = 0) -> None:
        """Prompt after prompt until it is enough, and one more."""
        number, over = 0, False
        while not over:
            await asyncio.wait([enough], timeout=pause)
            over = enough.done()
            began = time.monotonic()
            await self.prompt(schedule.prompt(self.seed, number), f"m{number}")
            self.slowest = max(self.slowest, time.monotonic() - began)
            number += 1

    async def prompt(self, text: str, message: str) -> None:
        """A prompt, to the end of its turn. What certainly never reached the agent is asked again."""
        try:
            await self._prompt(text, message)
        except AssertionError as exc:
            told = "\n".join(
                str(one.body) for one in self.front.of("turn", "epoch", "connection", "session")[-30:]
            )
            worker = self.worker
            state = f"busy {worker.busy}, generation {worker.generation}, open {worker.open()}"
            exc.add_note(
                f"seed {self.seed}, {self.session}, {message} {text!r}; the agent: {state}; heard:\n{told}"
            )
            raise

    async def _prompt(self, text: str, message: str) -> None:
        self.asked.append(text)
        payload = {"text": text, "client_message_id": message}
        while True:
            self.trail.note(f"{message} asked")
            told = await insist(lambda: self.front.ask("agent.prompt", self.session, **payload), self.trail)
            self.trail.note("accepted")

            def ended(generation: int = told["generation"]) -> bool:
                self._look()
                return generation in self._ended

            answering = asyncio.create_task(self._answer(), name=f"answers of {self.seed}")
            try:
                await self.front.wait(ended, _ENDED, f"the end of {message}", _EVERY)
            finally:
                answering.cancel()
                await asyncio.wait([answering])
            self.trail.note("ended")
            if text in self.worker.prompts:
                return

    def _look(self) -> None:
        """What the screen shows now."""
        for event in self.front.events[self._looked :]:
            if event.type == "turn" and event.body["state"] == "ended":
                self._ended.add(event.body["generation"])
            elif event.type == "permissions":
                self._open = event.body["open"]
            elif event.type == "shell_output":
                self._last_line = (self._last_line + event.body["data"])[-40:]
        self._looked = len(self.front.events)

    async def _answer(self) -> None:
        """Allow whatever the screen shows as open."""
        while True:
            self._look()
            for one in self._open:
                names = {name: one[name] for name in ("request_id", "pending_id")}
                with contextlib.suppress(TielineError):  # answered, or not reached: the screen will show it
                    await self.front.ask(
                        "agent.permissions.respond", self.session, **names, option_id="allow"
                    )
            await asyncio.sleep(_AGAIN)

    async def suffer(self, steps: Sequence[Step]) -> None:
        for step in steps:
            await asyncio.sleep(step.wait)
            match step.what:
                case "shell":
                    self.worker.write(int(step.about))
                case "viewer":
                    self.link.cut()
                case "agent" | "workspace":
                    self.worker.hang_up(step.what)

    async def settle(self) -> None:
        """Until the screen shows the last line that the shell writes."""
        self.worker.write(1)
        last = self.worker.shell.splitlines(keepends=True)[-1]

        def shown() -> bool:
            self._look()
            return self._last_line.endswith(last)

        await self.front.wait(shown, _ENDED, last, _EVERY)

    async def compare(self, late: Frontend, newcomer: Frontend) -> None:
        """Let another viewer read all of it from the start, and a newcomer only how things are."""
        self.late, self.newcomer = late, newcomer
        await late.watch(self.session, cursors=START)
        await newcomer.watch(self.session, cursors=dict.fromkeys(START, "snapshot"))
        for viewer in (late, newcomer):
            await viewer.wait(
                lambda viewer=viewer: _places(viewer) == _places(self.front),  # type: ignore[misc]
                _ENDED,
                "where the live viewer stands",
            )

    def wrong(self) -> list[str]:
        """What is wrong with what the viewers saw; nothing."""
        assert self.late is not None
        assert self.newcomer is not None
        found = []
        for log, types in VALUE_TYPES.items():
            found += same_state(seen(self.late.events, log), seen(self.newcomer.events, log), types)
        for log, type, field, said in (
            ("agent", "message_chunk", "text", self.worker.said),
            ("workspace", "shell_output", "data", self.worker.shell),
        ):
            live, late = seen(self.front.events, log), seen(self.late.events, log)
            for viewer, events in (("live", live), ("late", late)):
                judged = [*in_order(events), *of_one_text(pieces(events, type, field), said)]
                if log == "agent":
                    judged += one_end_each(events)
                found += [f"{viewer} {log}: {one}" for one in judged]
            found += [f"{log}: {one}" for one in agree(live, late)]
        ran = self.worker.prompts
        if ran != self.asked:
            found.append(f"the agent was asked {ran}, the user asked {self.asked}")
        return found


def _places(viewer: Frontend) -> dict[str, Position]:
    """Where a viewer stands in each log."""
    return {log: Cursor.parse(cursor).position for log, cursor in viewer.cursors.items()}


@contextlib.asynccontextmanager
async def players(world: World, seeds: Sequence[int]) -> AsyncIterator[list[Player]]:
    """A user with a session for each seed, who watches over a link of their own."""
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for seed in seeds:
            link = await stack.enter_async_context(
                Link("127.0.0.1", world.stack.ports[seed % len(world.stack.ports)])
            )
            user = f"user{seed}"
            front = await stack.enter_async_context(world.stack.frontend(user, link.port))
            made.append(Player(world, seed, user, front, link))
        await asyncio.gather(*(player.open() for player in made))
        yield made


async def compare(world: World, played: Sequence[Player]) -> None:
    """A late viewer and a newcomer for each."""
    async with contextlib.AsyncExitStack() as stack:
        for player in played:
            late, newcomer = [
                await stack.enter_async_context(world.stack.frontend(player.user)) for _ in range(2)
            ]
            await player.compare(late, newcomer)
