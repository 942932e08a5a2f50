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
from tests.support.real_executors import asked, closed, decided, file_made, known, process
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
    return known("tunnel", **tunnel)


@pytest.mark.timeout(60)
async def test_a_session_works_through_a_tunnel_that_is_made_anew_when_it_dies_and_ends_with_it(
    nats_server: NatsServer, bus: Bus, daemon: Daemon, commands: Commands, tmp_path: Path
) -> None:
    executors = settings(daemon, commands, tmp_path)
    user = Frontend(bus)
    async with streams.running(nats_server.url, executors):
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


@pytest.mark.timeout(60)
async def test_a_killed_service_leaves_no_tunnel_and_the_next_one_makes_its_own(
    nats_server: NatsServer, bus: Bus, daemon: Daemon, commands: Commands, tmp_path: Path
) -> None:
    user = Frontend(bus)
    async with process(nats_server.url, settings(daemon, commands, tmp_path), tmp_path) as service:
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


@pytest.mark.timeout(40)
async def test_a_tunnel_that_runs_and_forwards_nothing_is_made_anew(
    nats_server: NatsServer, bus: Bus, daemon: Daemon, commands: Commands, tmp_path: Path
) -> None:
    executors = settings(daemon, commands, tmp_path, check_every=0.2, check_timeout=0.5)
    user = Frontend(bus)
    async with streams.running(nats_server.url, executors):
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
        executors = settings(daemon, commands, tmp_path, **more)
        async with streams.running(nats_server.url, executors):
            with pytest.raises(TielineError, match=message):
                await Frontend(bus).rpc("open")
    assert commands.running == []
