"""Sessions that do not come to be: what whoever opens one is told, at once, and what is left of it: nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tieline_protocol.bus import Bus
from tieline_protocol.errors import Code, Refused
from tieline_streams.config import Executors, Limits

from tests.support import streams
from tests.support.agentctl import Agentctl
from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer
from tests.support.process import Process
from tests.support.streams import Frontend


@pytest.fixture
async def daemon() -> AsyncIterator[Agentctl]:
    async with Agentctl() as scripted:
        yield scripted


def own(tmp_path: Path, script: str) -> Executors:
    """A daemon of the session's own, a real one, and an agent of few words."""
    local = {"kind": "local", "root": str(tmp_path / "work")}
    agent = {"command": [sys.executable, "-c", script]}
    return Executors.model_validate({"executors": {"local": local}, "agents": {"agent": agent}})


@pytest.mark.timeout(40)
@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("import sys; print('warming up', file=sys.stderr); sys.exit('no API key')", 1, "no API key"),
        ("import sys; sys.stdin.readline(); sys.stderr.write('half a line'); sys.exit(3)", 3, "half a line"),
        ("pass", 0, ""),
    ],
)
async def test_an_agent_that_ends_at_its_start_is_told_with_its_last_words(
    nats_server: NatsServer, bus: Bus, tmp_path: Path, script: str, code: int, said: str
) -> None:
    async with streams.running(nats_server.url, own(tmp_path, script)):
        user = Frontend(bus)
        with pytest.raises(Refused) as refused:
            await user.rpc("open")
        (listed,) = (await user.rpc("list"))["sessions"]

    error = refused.value
    assert error.code is Code.UNAVAILABLE
    assert f"the agent ended with code {code}" in error.message
    assert said in error.message
    assert error.details is not None
    assert error.details["exit_code"] == code
    assert said in "\n".join(error.details["stderr"])
    assert listed["session_id"] == error.details["session_id"]
    assert (listed["state"], listed["reason"]) == ("failed", error.message)


async def test_a_refusal_at_the_start_is_unavailable_and_names_the_session(
    nats_server: NatsServer, bus: Bus, daemon: Agentctl, tmp_path: Path
) -> None:
    daemon.script.answers["agent.session.new"] = {"success": False, "error": "log in first"}
    async with streams.running(nats_server.url, streams.executors(daemon, tmp_path)):
        user = Frontend(bus)
        with pytest.raises(Refused, match="log in first") as refused:
            await user.rpc("open")
        (listed,) = (await user.rpc("list"))["sessions"]

    assert refused.value.code is Code.UNAVAILABLE
    assert refused.value.details == {"session_id": listed["session_id"]}
    assert listed["state"] == "failed"


async def test_a_session_that_breaks_while_it_opens_is_told_at_once(
    nats_server: NatsServer, bus: Bus, daemon: Agentctl, tmp_path: Path
) -> None:
    """An instance that is gone stays gone: nobody waits for the whole time of an open."""
    daemon.script.answers["agent.initialize"] = None
    async with streams.running(nats_server.url, streams.executors(daemon, tmp_path), Limits(slow_retry=0.2)):
        user = Frontend(bus)
        opening = asyncio.create_task(user.rpc("open"))
        await eventually(lambda: daemon.agent and daemon.workspace)
        for name in ("agent", "workspace"):
            daemon.script.refuse[name] = (401, {"error": "invalid auth token"})
        daemon.agent[0].abort()
        with pytest.raises(Refused) as refused:
            await asyncio.wait_for(opening, 4)
        (listed,) = (await user.rpc("list"))["sessions"]

    assert refused.value.code is Code.UNAVAILABLE
    assert listed["state"] == "failed"
    assert daemon.instances == {}


@pytest.mark.timeout(40)
async def test_a_service_that_stops_undoes_what_opens_and_ends_within_two_seconds(
    nats_server: NatsServer, bus: Bus, daemon: Agentctl, tmp_path: Path
) -> None:
    file = tmp_path / "executors.json"
    file.write_text(streams.executors(daemon, tmp_path).model_dump_json())
    args = ["--executors-file", str(file), "--nats-url", nats_server.url, "--log-format", "text"]
    daemon.script.answers["agent.initialize"] = None
    user = Frontend(bus)
    async with Process("tieline_streams", tmp_path / "run", args, timeout=15) as service:
        opening = asyncio.create_task(user.rpc("open"))
        await eventually(lambda: daemon.agent and daemon.agent[0].of("agent.initialize"))
        assert await service.stop(timeout=2) == 0
        with pytest.raises(Refused) as refused:
            await opening
        await service.start()
        (listed,) = (await user.rpc("list"))["sessions"]

    assert refused.value.code is Code.UNAVAILABLE
    assert "stopped" in refused.value.message
    assert daemon.instances == {}
    assert listed["state"] == "failed"


async def test_an_instance_that_is_being_made_when_nobody_wants_it_any_more_is_deleted(
    nats_server: NatsServer, bus: Bus, daemon: Agentctl, tmp_path: Path
) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def slowly(request: object) -> tuple[int, dict[str, object]]:
        asked.set()
        await go.wait()
        return 201, {"id": "late", "port": 1}

    daemon.script.http["POST", "/api/v1/instances"] = slowly
    async with streams.running(nats_server.url, streams.executors(daemon, tmp_path)):
        user = Frontend(bus)
        opening = asyncio.create_task(user.rpc("open"))
        await asked.wait()
        (listed,) = (await user.rpc("list"))["sessions"]
        closing = asyncio.create_task(user.command("session.close", session=listed["session_id"]))
        await user.rpc("list")
        go.set()
        assert await closing == {}
        with pytest.raises(Refused, match="closed while it opened"):
            await opening

    assert [one.path for one in daemon.controlled if one.method == "DELETE"] == ["/api/v1/instances/late"]


@pytest.mark.timeout(40)
async def test_a_silent_agent_of_a_real_daemon_does_not_delay_the_stop(
    nats_server: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    file = tmp_path / "executors.json"
    file.write_text(own(tmp_path, "import time; time.sleep(1000)").model_dump_json())
    args = ["--executors-file", str(file), "--nats-url", nats_server.url, "--log-format", "text"]
    user = Frontend(bus)
    async with Process("tieline_streams", tmp_path / "run", args, timeout=15) as service:
        opening = asyncio.create_task(user.rpc("open"))

        async def up() -> bool:
            sessions = (await user.rpc("list"))["sessions"]
            user.session = sessions[0]["session_id"] if sessions else ""
            return bool(user.session and await user.events("agent", "connection"))

        await eventually(up, timeout=15)
        assert await service.stop(timeout=3) == 0
        with pytest.raises(Refused):
            await opening
