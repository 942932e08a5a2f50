"""The executor `local`: a daemon of the session's own, a real one, that ends with its session."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from tieline_protocol.bus import Bus
from tieline_protocol.errors import TielineError
from tieline_streams.config import Executors
from tieline_streams.executors.local import MARK, is_ours

from tests.support import streams
from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer
from tests.support.process import Process
from tests.support.streams import Frontend


@pytest.fixture
def known(tmp_path: Path) -> Executors:
    """The first of each is the default: a local daemon, and the example agent."""
    # Whatever the start-up files of whoever runs this do is none of its business.
    env = {"AGENTCTL_SHELL_COMMAND": "/bin/sh"}
    local = {"kind": "local", "root": str(tmp_path / "work"), "env": env}
    agent = {"command": [sys.executable, "-m", "tieline_agentctl.example_agent"]}
    return Executors.model_validate({"executors": {"local": local}, "agents": {"example": agent}})


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
        await user.command("agent.prompt", {"text": "say hello\nask May I"})
        asked = (await user.until("agent", "permission_request", timeout=15))["pending_id"]
        request = (await user.events("agent", "permission_request"))[0]["request_id"]
        answer = {"pending_id": asked, "request_id": request, "option_id": "allow"}
        decided = await user.command("agent.permissions.respond", answer)
        await user.until("agent", "turn", timeout=15, generation=1, state="ended", reason="end_turn")
        await user.command("shell.input", {"data": "echo $((41 + 1))\r"})
        await eventually(lambda: _shell(user, "42"), timeout=10)
        tree = await user.command("workspace.file-tree", {"path": ""})
        created = await user.command("workspace.file-create", {"path": "a.txt"})
        await user.command("session.close", budget_ms=20_000)

    assert running
    assert files == [session]
    assert list((tmp_path / "tieline-agentctl").iterdir()) == []
    assert decided == {"status": "resolved"}
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
    file = tmp_path / "executors.json"
    file.write_text(known.model_dump_json())
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
        await user.command("agent.prompt", {"text": "say hello\nask May I"})
        await user.until("agent", "permission_request", timeout=15)
        before = [pid for pid in left(session) if is_ours(pid, session)]
        await service.kill()
        await service.start()
        asked = await eventually(lambda: _open(user), timeout=20)
        answer = {name: asked[name] for name in ("pending_id", "request_id")}
        await eventually(lambda: _decided(user, {**answer, "option_id": "allow"}), timeout=10)
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


async def _decided(user: Frontend, answer: dict) -> dict | None:
    try:
        return await user.command("agent.permissions.respond", answer)
    except TielineError:
        return None


@pytest.mark.timeout(40)
async def test_a_daemon_outlives_a_service_that_stops_until_its_session_is_closed(
    nats_server: NatsServer, bus: Bus, known: Executors
) -> None:
    user = Frontend(bus)
    async with streams.running(nats_server.url, known):
        session = await user.open()
    assert left(session)

    async with streams.running(nats_server.url, known):
        await eventually(lambda: _closed(user), timeout=20)

    assert left(session) == []


async def _closed(user: Frontend) -> bool:
    try:
        await user.command("session.close", budget_ms=20_000)
    except TielineError:
        return False
    return True


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
