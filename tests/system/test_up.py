"""`tieline up` from the outside: what it starts, brings back, and leaves behind (nothing)."""

import functools
import importlib.metadata
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tieline import TielineError

from tests.support.eventually import eventually
from tests.support.frontend import Frontend
from tests.support.system import System

SERVICES = ("nats", "agentctl", "model", "streams", "remotes", "agent", "gateway")


@pytest.mark.timeout(40)
async def test_the_system_is_soon_ready_tells_where_everything_is_and_stops_without_a_trace(
    tmp_path: Path,
) -> None:
    alone = "PYTEST_XDIST_WORKER" not in os.environ  # other tests want the same two cores
    async with System(tmp_path) as system:
        assert float(system.log.rpartition("ready after ")[2].split()[0]) < (5 if alone else 15)
        facts = system.facts
        assert facts["gateway_url"].startswith("ws://127.0.0.1:")
        assert facts["nats_url"].startswith("nats://127.0.0.1:")
        assert set(facts["pids"]) == set(SERVICES)
        assert set(facts["pids"].values()) <= set(system.processes())
        assert stat.S_IMODE((system.data / "jwt-secret").stat().st_mode) == 0o600
        for executor in ("static", "local"):
            async with Frontend(system.url, facts["token"]) as front:
                assert front.client.user_id == "dev"
                session = await front.open(executor=executor)
                await front.watch(session)
                await front.ask("shell.input", session, data="sleep 1000 & echo $((40+2))\n")
                await front.until_screen("42")
        assert any("sleep 1000" in command for command in system.processes().values())
        code = await system.stop()

        assert code == 0
        assert system.processes() == {}
        assert not system.ready_file.exists()
        for name in SERVICES:
            assert f"{name:<9} stopped" in system.log


@pytest.mark.long
@pytest.mark.timeout(60)
async def test_programs_that_do_not_want_to_end_make_no_service_end_in_disorder(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        for executor in ("static", "local"):
            async with Frontend(system.url, system.token()) as front:
                session = await front.open(executor=executor)
                await front.watch(session)
                await front.ask(
                    "process.start", session, command="trap '' TERM; setsid sleep 1000 & sleep 1000"
                )
                await front.ask("agent.prompt", session, text="child 1000\nwait 1000")
                await front.until("turn", state="running")
        code = await system.stop(20)

        assert code == 0
        assert system.processes() == {}
        assert "signal 9" not in system.log


@pytest.mark.timeout(40)
async def test_nothing_survives_a_system_that_is_killed(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        async with Frontend(system.url, system.token()) as front:
            for executor in ("static", "local"):
                await front.open(executor=executor)
            await system.kill()
        await eventually(lambda: not system.processes(), 15)


@pytest.mark.timeout(60)
async def test_killed_services_are_brought_back(system: System) -> None:
    for name in SERVICES:
        before = system.now()["pids"]

        os.kill(before[name], signal.SIGKILL)
        await eventually(functools.partial(is_new, system, name, before[name]), 20)

        after = system.now()["pids"]
        assert {other for other in SERVICES if after[other] != before[other]} == {name}
        assert f"{name:<9} crashed (signal 9)" in system.log
    async with Frontend(system.url, system.token()) as front:
        session = await front.open()
        await front.watch(session)
        await front.ask("agent.prompt", session, text="say back again")
        await front.until_ended()

    assert front.text() == "back again"


def is_new(system: System, name: str, old: int) -> bool:
    return bool(system.now()["pids"][name] != old)


@pytest.mark.timeout(30)
async def test_a_second_system_on_the_same_data_is_refused(shared_system: System, tmp_path: Path) -> None:
    second = System(tmp_path, ready=False)
    second._args[second._args.index("--data") + 1] = str(shared_system.data)
    await second.start()

    assert await second.wait() == 1
    assert "is in use by another system" in second.log
    assert shared_system.code is None


@pytest.mark.timeout(30)
async def test_a_port_that_is_taken_ends_the_start_with_the_reason(
    shared_system: System, tmp_path: Path
) -> None:
    taken = shared_system.facts["nats_url"].rpartition(":")[2]
    second = System(tmp_path, ["--nats-port", taken], ready=False)
    await second.start()

    assert await second.wait(20) == 1
    assert f"port {taken} is in use: choose another with --nats-port (0: any free one)" in second.log
    assert "started" not in second.log
    assert second.processes() == {}


@pytest.mark.timeout(30)
async def test_a_service_that_cannot_start_says_why_in_words(tmp_path: Path) -> None:
    system = System(tmp_path, ready=False)
    (system.data / "nats").mkdir(parents=True)
    (system.data / "nats/jetstream").write_text("not a directory")
    await system.start()

    assert await system.wait(20) == 1
    reasons = [line for line in system.log.splitlines() if "  | " in line]
    assert reasons
    assert not [line for line in reasons if "{" in line or "[INF]" in line]


@pytest.mark.timeout(40)
async def test_who_names_an_agent_that_cannot_start_reads_why(tmp_path: Path) -> None:
    agent = f"{sys.executable} -c 'import sys; sys.exit(\"there is no key\")'"
    async with System(tmp_path, ["--agent", agent]) as system, Frontend(system.url, system.token()) as front:
        with pytest.raises(TielineError, match=r"ended with code 1:\s+there is no key"):
            await front.open()
        assert await front.open(agent="example")


async def test_a_token_can_be_minted_for_anybody(shared_system: System) -> None:
    token = minted("ann", shared_system)

    async with Frontend(shared_system.url, token) as front:
        assert front.client.user_id == "ann"


def test_a_token_of_no_system_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tieline_ops", "token", "--data", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "there is no system here" in done.stderr
    assert not (tmp_path / "none").exists()


def test_the_command_says_which_version_it_is() -> None:
    command = [sys.executable, "-m", "tieline_ops", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout == f"tieline {importlib.metadata.version('tieline-ops')}\n"


def minted(user: str, system: System) -> str:
    command = [sys.executable, "-m", "tieline_ops", "token", "--user", user, "--data", str(system.data)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
