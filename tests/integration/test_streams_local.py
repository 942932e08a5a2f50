"""The executor `local`: a daemon of the session's own, a real one, that ends with its session."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from tieline_protocol.bus import Bus
from tieline_streams.config import Executors
from tieline_streams.executors.local import MARK, is_ours

from tests.support import real_executors, streams
from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer
from tests.support.real_executors import SHELL, asked, closed, decided, process
from tests.support.streams import Frontend


@pytest.fixture
def known(tmp_path: Path) -> Executors:
    """The first of each is the default: a local daemon, and the example agent."""
    return real_executors.known("local", root=str(tmp_path / "work"), env=SHELL)


def left(session: str) -> list[int]:
    """Processes that carry the session's mark."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if f"{MARK}={session}".encode() in environment.split(b"\x00"):
            found.append(int(entry.name))
    return found


@pytest.mark.timeout(40)
async def test_a_session_has_a_daemon_of_its_own_that_ends_with_it(
    nats_server: NatsServer, bus: Bus, known: Executors, tmp_path: Path
) -> None:
    async with streams.running(nats_server.url, known):
        user = Frontend(bus)
        session = await user.open(workspace="project")
        running = left(session)
        files = sorted(one.name for one in (tmp_path / "tieline-agentctl").iterdir())
        allowed = await user.command("agent.permissions.respond", await asked(user))
        await user.until("agent", "turn", timeout=15, generation=1, state="ended", reason="end_turn")
        await user.command("shell.input", {"data": "echo $((41 + 1))\r"})
        await eventually(lambda: _shell(user, "42"), timeout=10)
        tree = await user.command("workspace.file-tree", {"path": ""})
        created = await user.command("workspace.file-create", {"path": "a.txt"})
        await user.command("session.close", budget_ms=20_000)

    assert running
    assert files == [session]
    assert list((tmp_path / "tieline-agentctl").iterdir()) == []
    assert allowed == {"status": "resolved"}
    assert tree["root"]["is_dir"] is True
    assert created["success"] is True
    assert (tmp_path / "work" / "project" / "a.txt").exists()
    assert left(session) == []


async def _shell(user: Frontend, wanted: str) -> bool:
    return wanted in "".join(one["data"] for one in await user.events("workspace", "shell_output"))


@pytest.mark.timeout(60)
async def test_a_daemon_outlives_a_killed_service_and_its_turn_goes_on(
    nats_server: NatsServer, bus: Bus, known: Executors, tmp_path: Path
) -> None:
    user = Frontend(bus)
    async with process(nats_server.url, known, tmp_path) as service:
        session = await user.open()
        await asked(user)
        before = [pid for pid in left(session) if is_ours(pid, session)]
        await service.kill()
        await service.start()
        still = await eventually(lambda: _open(user), timeout=20)
        answer = {name: still[name] for name in ("pending_id", "request_id")}
        await eventually(lambda: decided(user, {**answer, "option_id": "allow"}), timeout=10)
        ended = await user.until("agent", "turn", timeout=15, generation=1, state="ended")
        after = [pid for pid in left(session) if is_ours(pid, session)]
        await user.command("session.close", budget_ms=20_000)

    assert ended["reason"] == "end_turn"
    assert after == before
    assert len([one for one in await user.events("agent", "turn") if one["state"] == "ended"]) == 1
    assert left(session) == []
    assert list((tmp_path / "tieline-agentctl").iterdir()) == []


async def _open(user: Frontend) -> dict | None:
    """The permission that is open with the second owner."""
    if len(await user.events("agent", "epoch")) < 2:
        return None
    said = (await user.events("agent", "permissions"))[-1]["open"]
    return said[0] if said else None


@pytest.mark.timeout(40)
async def test_a_daemon_outlives_a_service_that_stops_until_its_session_is_closed(
    nats_server: NatsServer, bus: Bus, known: Executors
) -> None:
    user = Frontend(bus)
    async with streams.running(nats_server.url, known):
        session = await user.open()
    assert left(session)

    async with streams.running(nats_server.url, known):
        await eventually(lambda: closed(user), timeout=20)

    assert left(session) == []


@pytest.mark.timeout(40)
async def test_what_a_killed_daemon_left_running_ends_with_its_session(
    nats_server: NatsServer, bus: Bus, known: Executors
) -> None:
    async with streams.running(nats_server.url, known):
        user = Frontend(bus)
        session = await user.open()
        await user.command("process.start", {"command": "sleep 600"})
        daemon = next(pid for pid in left(session) if is_ours(pid, session))
        os.kill(daemon, signal.SIGKILL)
        await user.until("agent", "connection", timeout=15, state="waiting")
        survivors = left(session)
        await user.command("session.close", budget_ms=20_000)

    assert survivors
    assert left(session) == []


def test_a_process_that_does_not_carry_the_mark_is_not_ours() -> None:
    assert not is_ours(os.getpid(), "s1")
    assert not is_ours(2**22 + 1, "s1")


async def test_a_command_that_cannot_be_started_is_a_clear_error(
    nats_server: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    for command, message in (
        (["/no/such/thing"], "cannot be started"),
        ([sys.executable, "-c", "exit(3)"], "code 3"),
    ):
        local = {"kind": "local", "root": str(tmp_path), "command": command}
        known = Executors.model_validate({"executors": {"l": local}, "agents": {"a": {"command": ["x"]}}})
        async with streams.running(nats_server.url, known):
            with pytest.raises(Exception, match=message):
                await Frontend(bus).rpc("open")


@pytest.mark.timeout(60)
async def test_an_agent_that_ends_in_its_turn_is_started_again_with_its_conversation(
    nats_server: NatsServer, bus: Bus, known: Executors
) -> None:
    """B66, B68: what was said before is not said again."""
    async with streams.running(nats_server.url, known):
        user = Frontend(bus)
        await user.open()
        for generation, last in ((1, "crash 3"), (2, "exit")):
            await user.command("agent.prompt", {"text": f"say {generation} \\n\n{last}"})
            await user.until("agent", "turn", timeout=15, generation=generation, state="ended")
            await eventually(lambda n=generation: _told_gone(user, n), timeout=10)
        await user.command("agent.prompt", {"text": "say 3"}, budget_ms=20_000)
        await user.until("agent", "turn", timeout=15, generation=3, state="ended", reason="end_turn")
        turns = [one for one in await user.events("agent", "turn") if one["state"] == "ended"]
        said = "".join(one.get("text", "") for one in await user.events("agent", "message_chunk"))
        await user.command("session.close", budget_ms=20_000)

    assert [(one["generation"], one["reason"]) for one in turns] == [
        (1, "agent_exited"),
        (2, "agent_exited"),
        (3, "end_turn"),
    ]
    assert said.split() == ["1", "2", "3"]


async def _told_gone(user: Frontend, times: int) -> bool:
    return (
        len([one for one in await user.events("agent", "session") if "has ended" in one.get("reason", "")])
        >= times
    )
