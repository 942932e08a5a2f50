"""The executor `tunnel`: a daemon that only a forwarding command reaches, real processes all of them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tieline_protocol.bus import Bus
from tieline_protocol.errors import TielineError
from tieline_streams.config import Executors
from tieline_streams.executors import forward, marked

from tests.support import daemon as real
from tests.support import forwarder, streams
from tests.support.daemon import Daemon, alive
from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer
from tests.support.process import Process
from tests.support.streams import Frontend

SHELL = {"AGENTCTL_INSTANCE_PORT_MAX": "0"}


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    """The one over there."""
    async with real.daemon(tmp_path / "there", env=SHELL) as it:
        yield it


class Commands:
    """What the forwarding commands noted: `(pid, remote port)` of each, oldest first."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def all(self) -> list[tuple[int, int]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [(int(pid), int(port)) for pid, port in (line.split() for line in lines)]

    @property
    def running(self) -> list[tuple[int, int]]:
        return [one for one in self.all if alive(one[0])]


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path / "forwarded")


def settings(daemon: Daemon, commands: Commands, tmp_path: Path, **more: Any) -> Executors:
    (tmp_path / "over-there").mkdir(exist_ok=True)
    token = tmp_path / "token"
    token.write_text(daemon.token + "\n")
    tunnel = {
        "kind": "tunnel",
        "command": [
            sys.executable,
            forwarder.__file__,
            "{local}",
            "{host}",
            "{remote}",
            str(commands.path),
        ],
        "port": int(daemon.url.rpartition(":")[2]),
        "token_file": str(token),
        "root": str(tmp_path / "over-there"),
        **more,
    }
    agent = {"command": [sys.executable, "-m", "tieline_agentctl.example_agent"]}
    return Executors.model_validate({"executors": {"tunnel": tunnel}, "agents": {"example": agent}})


async def asked(user: Frontend) -> dict[str, Any]:
    """Prompt for something that waits for a permission, and the permission."""
    await user.command("agent.prompt", {"text": "say hello\nask May I"})
    request = await user.until("agent", "permission_request", timeout=15)
    return {
        "pending_id": request["pending_id"],
        "request_id": request["request_id"],
        "option_id": "allow",
    }


async def decided(user: Frontend, answer: dict[str, Any]) -> bool:
    try:
        return (await user.command("agent.permissions.respond", answer))["status"] == "resolved"
    except TielineError:
        return False


@pytest.mark.timeout(60)
async def test_a_session_works_through_a_tunnel_that_is_made_anew_when_it_dies_and_ends_with_it(
    nats_server: NatsServer, bus: Bus, daemon: Daemon, commands: Commands, tmp_path: Path
) -> None:
    known = settings(daemon, commands, tmp_path)
    user = Frontend(bus)
    async with streams.running(nats_server.url, known):
        session = await user.open(workspace="project")
        first = commands.running
        answer = await asked(user)
        os.kill(first[0][0], signal.SIGKILL)
        await user.until("agent", "connection", timeout=15, state="waiting")
        await eventually(lambda: decided(user, answer), timeout=20)
        ended = await user.until("agent", "turn", timeout=15, generation=1, state="ended")
        await eventually(lambda: file_made(user), timeout=15)
        second = commands.running
        await user.command("session.close", budget_ms=20_000)
        left = marked.pids(forward.MARK, session)
    instances = (await daemon.http.get("/api/v1/instances")).json()

    assert len(first) == len(second) == 1
    assert first[0][1] == second[0][1]  # the same port over there, another process
    assert first != second
    assert ended["reason"] == "end_turn"
    assert (tmp_path / "over-there" / "project" / "a.txt").exists()
    assert instances == []
    assert left == []
    assert commands.running == []


async def file_made(user: Frontend) -> bool:
    try:
        return (await user.command("workspace.file-create", {"path": "a.txt"}))["success"] is True
    except TielineError:
        return False


@pytest.mark.timeout(60)
async def test_a_killed_service_leaves_no_tunnel_and_the_next_one_makes_its_own(
    nats_server: NatsServer, bus: Bus, daemon: Daemon, commands: Commands, tmp_path: Path
) -> None:
    file = tmp_path / "executors.json"
    file.write_text(settings(daemon, commands, tmp_path).model_dump_json())
    args = [
        "--executors-file",
        str(file),
        "--nats-url",
        nats_server.url,
        "--log-format",
        "text",
        "--lease-seconds",
        "3",
    ]
    user = Frontend(bus)
    async with Process("tieline_streams", tmp_path / "run", args, timeout=15) as service:
        session = await user.open()
        before = commands.running
        answer = await asked(user)
        await service.kill()
        await eventually(lambda: not commands.running, timeout=10)
        await service.start()
        await eventually(lambda: decided(user, answer), timeout=25)
        ended = await user.until("agent", "turn", timeout=15, generation=1, state="ended")
        after = commands.running
        await service.stop()
        released = commands.running
        await service.start()
        await eventually(lambda: closed(user), timeout=20)

    assert len(before) == len(after) == 1
    assert before != after
    assert ended["reason"] == "end_turn"
    assert len([one for one in await user.events("agent", "turn") if one["state"] == "ended"]) == 1
    assert released == []
    assert marked.pids(forward.MARK, session) == []
    assert (await daemon.http.get("/api/v1/instances")).json() == []


async def closed(user: Frontend) -> bool:
    try:
        await user.command("session.close", budget_ms=20_000)
    except TielineError:
        return False
    return True


@pytest.mark.timeout(40)
async def test_a_tunnel_that_runs_and_forwards_nothing_is_made_anew(
    nats_server: NatsServer, bus: Bus, daemon: Daemon, commands: Commands, tmp_path: Path
) -> None:
    known = settings(daemon, commands, tmp_path, check_every=0.2, check_timeout=0.5)
    user = Frontend(bus)
    async with streams.running(nats_server.url, known):
        await user.open()
        before = commands.running
        deaf = commands.path.with_suffix(".deaf")
        deaf.touch()
        await eventually(lambda: commands.running not in ([], before), timeout=15)
        deaf.unlink()
        await eventually(lambda: file_made(user), timeout=20)
        await user.command("session.close", budget_ms=20_000)

    assert not alive(before[0][0])


async def test_why_a_tunnel_cannot_be_made_is_told_to_whoever_opens(
    nats_server: NatsServer, bus: Bus, daemon: Daemon, commands: Commands, tmp_path: Path
) -> None:
    commands.path.with_suffix(".refuse").touch()
    for more, message in (
        ({}, "ended with code 1: connect to host: No route to host"),
        ({"command": ["/no/such/thing", "{local}", "{remote}"]}, "cannot be started: No such file"),
    ):
        known = settings(daemon, commands, tmp_path, **more)
        async with streams.running(nats_server.url, known):
            with pytest.raises(TielineError, match=message):
                await Frontend(bus).rpc("open")
    assert commands.running == []
