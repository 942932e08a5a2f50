"""A cancel that the agent ignores: the turn ends all the same, once, and the session takes the next prompt."""

from __future__ import annotations

import asyncio
import time

import pytest
from tieline_protocol.bus import Bus
from tieline_protocol.errors import TielineError
from tieline_streams.config import Executors, Limits
from tieline_streams.turn import Limits as TurnLimits

from tests.support import streams
from tests.support.agentctl import complete, event
from tests.support.nats_server import NatsServer
from tests.support.scripted_daemon import ScriptedDaemon
from tests.support.streams import Frontend


@pytest.mark.parametrize("after", [1, pytest.param(10, marks=pytest.mark.long)])
@pytest.mark.timeout(40)
async def test_a_cancel_that_is_ignored_ends_the_turn_once_however_often_it_is_clicked(
    bus: Bus, nats_server: NatsServer, daemon: ScriptedDaemon, known: Executors, after: float
) -> None:
    """B74: what the abandoned turn still says ends nothing."""
    user = Frontend(bus)
    daemon.script.answers["agent.cancel"] = None
    limits = Limits(agent_request=2, turn=TurnLimits(cancel=after))

    async def click() -> str:
        try:
            await user.command("agent.cancel", budget_ms=5_000)
        except TielineError as exc:
            return exc.code.value
        return "answered"

    async with streams.running(nats_server.url, known, limits):
        await user.open()
        await user.command("agent.prompt", {"text": "one", "client_message_id": "m1"})
        daemon.text("one ")
        began = time.monotonic()
        clicks = []
        for _ in range(5):
            clicks.append(asyncio.create_task(click()))
            await asyncio.sleep(0.1)
        await user.until("agent", "turn", state="ended", timeout=after + 8)
        took = time.monotonic() - began
        told = await user.command("agent.prompt", {"text": "two", "client_message_id": "m2"})
        daemon.say(complete(1), event("message_chunk", text="two"), complete(2))
        await user.until("agent", "turn", state="ended", generation=2)
        answers = await asyncio.gather(*clicks)
        turns = await user.events("agent", "turn")

    print(f"promptable {took:.1f} s after the first of five clicks that were ignored")
    assert told == {"generation": 2}
    assert [
        (one["generation"], one["state"]) for one in turns if one["state"] in ("cancelling", "ended")
    ] == [
        (1, "cancelling"),
        (1, "ended"),
        (2, "ended"),
    ]
    assert [one["reason"] for one in turns if one["state"] == "ended"] == ["cancelled", "end_turn"]
    assert set(answers) <= {"answered", "timeout"}
    assert daemon.prompts() == ["one", "two"]
    assert took < after + 5
