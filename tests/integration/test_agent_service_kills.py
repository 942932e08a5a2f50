"""The agent's process is killed again and again under one run; each time another one goes on from the log.

The points between two stored facts are tried in memory (tests/unit/agent/test_crash_points.py); here processes, the
broker, the remotes service and the model's HTTP stream are real.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tieline_protocol.bus import BusSettings
from tieline_protocol.service import Common, running
from tieline_remotes.app import make as make_remotes
from tieline_remotes.config import Config as RemotesConfig

from tests.support.model import ModelServer, model_server
from tests.support.process import Process
from tests.support.remote_owner import Called, remote_owner
from tests.support.threads import Chat, function, remote, serving_calls

ASKED = "\n".join(f'call calc__f {{"n": {n}}}' for n in range(3))


class Rig:
    """One thread, the calls that its tools got, and one agent process at a time."""

    def __init__(self, chat: Chat, model: ModelServer, came: list[Called], replica: Callable[[str], Process]):
        self.chat = chat
        self.model = model
        self.came = came
        self._replica = replica
        self._names = (f"agent {number}" for number in range(1, 1_000))
        self.process: Process | None = None

    async def start(self) -> None:
        self.process = self._replica(next(self._names))
        await self.process.start()

    async def replace(self) -> None:
        """SIGKILL; the next one is there by then, as in a cluster."""
        killed = self.process
        await self.start()
        assert killed is not None
        await killed.kill()

    async def check(self, run: str) -> None:
        """One answer, no message lost, no tool run twice, a history that every provider takes."""
        ended = await self.chat.ended(run, 30)
        log = await self.chat.events()
        said = [event for event in log if event["type"] == "message"]
        whole = [event for event in said if event["role"] == "assistant" and not event.get("interrupted")]
        answers = [event for event in whole if "tool_calls" not in event]
        shown: Counter[str] = Counter()
        for event in log:
            if event["type"] == "delta":
                shown[event["message_id"]] += len(event["text"])

        assert ended["reason"] == "answer"
        assert [event["content"] for event in said if event["role"] == "user"] == [ASKED]
        assert [event["state"] for event in log if event["type"] == "run"].count("ended") == 1
        assert len(answers) == 1
        assert max(Counter(called.args["n"] for called in self.came).values()) == 1
        assert all(shown[event["message_id"]] == len(event["content"]) for event in said[1:])
        assert not self.model.state.refused


async def answering(called: Called) -> None:
    await asyncio.sleep(0.4 * called.args["n"])
    with contextlib.suppress(Exception):  # whoever waited may be dead
        await called.result(f"number {called.args['n']}")


@pytest.fixture
async def rig(bus, nats_server, tmp_path) -> AsyncIterator[Rig]:
    remotes = RemotesConfig(BusSettings(nats_server.url, "remotes"), drain=0.2)
    async with contextlib.AsyncExitStack() as stack:
        model = await stack.enter_async_context(model_server(pace=0.05))
        await stack.enter_async_context(running(Common("remotes"), make_remotes(remotes)))
        owner = await stack.enter_async_context(remote_owner(bus))
        await owner.connect("ada@example.org", "calc", [function("f")])
        came = await stack.enter_async_context(serving_calls(owner, answering))
        options = ["--nats-url", nats_server.url, "--openai-base-url", model.url, "--model", "m"]
        made: list[Process] = []

        def replica(name: str) -> Process:
            process = Process("tieline_agent", tmp_path, [*options, "--lease-seconds", "2"], name=name)
            made.append(process)
            stack.push_async_callback(process._end)
            return process

        rig = Rig(Chat(bus), model, came, replica)
        await rig.start()
        await rig.chat.create()
        yield rig


def told(type: str, **fields: Any) -> Callable[[Rig], Awaitable[Any]]:
    return lambda rig: rig.chat.until(type, 20, **fields)


@pytest.mark.timeout(60)
async def test_killed_in_the_text_in_the_calls_and_in_the_answer(rig: Rig) -> None:
    """B59"""
    run = await rig.chat.say(ASKED, remote("calc"))
    for phase in (told("delta"), told("tool_call"), told("tool_result")):
        await phase(rig)
        await rig.replace()

    await rig.check(run)
    assert len(await rig.chat.events("epoch")) >= 2


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_killed_at_fifty_moments(rig: Rig) -> None:
    """B59: ten threads, five kills each, at random moments."""
    chance = random.Random(3)
    for _ in range(10):
        rig.came.clear()
        await rig.chat.create()
        run = await rig.chat.say(ASKED, remote("calc"))
        for _ in range(5):
            await asyncio.sleep(chance.random() * 3)
            await rig.replace()
        await rig.check(run)
