"""Turns that end although nobody says so, against a scripted daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tieline_protocol.bus import Bus
from tieline_streams import turn
from tieline_streams.config import Limits

from tests.support import streams
from tests.support.agentctl import Agentctl, Answer, event
from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer
from tests.support.streams import Frontend


@pytest.fixture
async def daemon() -> AsyncIterator[Agentctl]:
    async with Agentctl() as scripted:
        yield scripted


def status(agent: str = "running", **more: object) -> Answer:
    return 200, {
        "agent_status": agent,
        "process_info": {"status": agent, "exit_code": 0, "pid": 4711},
        **more,
    }


async def ends(user: Frontend) -> list[str]:
    return [one["reason"] for one in await user.events("agent", "turn") if one["state"] == "ended"]


async def test_an_agent_that_ends_without_a_word_ends_its_turn(
    nats_server: NatsServer, bus: Bus, daemon: Agentctl, tmp_path: Path
) -> None:
    """B66: an exit with code 0 is an event of nobody's."""
    limits = Limits(turn=turn.Limits(silent=0.2))
    user = Frontend(bus)
    async with streams.running(nats_server.url, streams.executors(daemon, tmp_path), limits):
        await user.open()
        await user.command("agent.prompt", {"text": "x"})
        await user.until("agent", "turn", state="running")
        daemon.script.http["GET", "/api/v1/status"] = lambda one: status("stopped")
        await user.until("agent", "turn", state="ended")

        assert await ends(user) == ["agent_exited"]


async def test_a_turn_whose_end_got_lost_is_ended_once(
    nats_server: NatsServer, bus: Bus, daemon: Agentctl, tmp_path: Path
) -> None:
    """B66: the daemon says that it is not at work any more."""
    limits = Limits(turn=turn.Limits(silent=0.2, settle=0.2))
    user = Frontend(bus)
    async with streams.running(nats_server.url, streams.executors(daemon, tmp_path), limits):
        await user.open()
        await user.command("agent.prompt", {"text": "x"})
        daemon.script.http["GET", "/api/v1/status"] = lambda one: status(busy=True, prompt_generation=1)
        asked = len(daemon.asked)
        await eventually(lambda: len(daemon.asked) > asked + 1)
        assert await ends(user) == []
        daemon.script.http["GET", "/api/v1/status"] = lambda one: status(busy=False, prompt_generation=1)
        await user.until("agent", "turn", state="ended")
        daemon.agent[-1].send(event("message_chunk", text="late"))
        await user.until("agent", "message_chunk")

        assert await ends(user) == ["unknown"]


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.timeout(20)
async def test_a_turn_that_was_taken_over_and_stays_silent_is_cancelled_and_ends(
    nats_server: NatsServer, bus: Bus, daemon: Agentctl, tmp_path: Path, answers: bool
) -> None:
    """B67: the daemon in the field cannot be asked whether it is at work."""
    limits = Limits(turn=turn.Limits(silent=0.2, stalled=0.6, cancel=0.6))
    known = streams.executors(daemon, tmp_path)
    user = Frontend(bus)
    if not answers:
        daemon.script.answers["agent.cancel"] = None
    async with streams.running(nats_server.url, known):
        await user.open()
        await user.command("agent.prompt", {"text": "x"})
        await user.until("agent", "turn", state="running")
    async with streams.running(nats_server.url, known, limits):
        await user.until("agent", "turn", state="ended", timeout=10)
        told = [one["state"] for one in await user.events("agent", "turn")]
        assert (await user.command("agent.prompt", {"text": "y"})) == {"generation": 2}

    assert told == ["accepted", "running", "cancelling", "ended"]
    assert (await ends(user))[0] == "cancelled"
    assert len([one for stream in daemon.agent for one in stream.of("agent.cancel")]) == 1
    assert [one.path for one in daemon.asked if one.path.endswith("/stop")] == []  # the agent is left alone


async def test_a_turn_that_was_taken_over_goes_on_in_silence_while_the_daemon_is_at_work(
    nats_server: NatsServer, bus: Bus, daemon: Agentctl, tmp_path: Path
) -> None:
    """B67 (b)."""
    limits = Limits(turn=turn.Limits(silent=0.2, stalled=0.6))
    known = streams.executors(daemon, tmp_path)
    daemon.script.http["GET", "/api/v1/status"] = lambda one: status(busy=True, prompt_generation=1)
    user = Frontend(bus)
    async with streams.running(nats_server.url, known):
        await user.open()
        await user.command("agent.prompt", {"text": "x"})
        await user.until("agent", "turn", state="running")
    async with streams.running(nats_server.url, known, limits):
        await user.until("agent", "turn", state="running", stalled=True, timeout=10)

    assert await ends(user) == []
    assert [one for stream in daemon.agent for one in stream.of("agent.cancel")] == []
