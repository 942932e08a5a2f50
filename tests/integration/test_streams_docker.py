"""The executor `docker`: a container for each session, against a scripted engine whose containers are real daemons."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tieline_protocol.bus import Bus
from tieline_protocol.errors import TielineError
from tieline_streams.config import Executors
from tieline_streams.executors.docker import LABEL

from tests.support import streams
from tests.support.daemon import alive
from tests.support.engine import IMAGE, Engine
from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer
from tests.support.real_executors import SHELL, asked, decided, file_made, known, process
from tests.support.streams import Frontend


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    async with Engine(tmp_path) as scripted:
        yield scripted


def settings(engine: Engine, tmp_path: Path, **more: Any) -> Executors:
    docker = {"socket": str(engine.socket), "image": IMAGE, "root": str(tmp_path / "work"), "env": SHELL}
    return known("docker", **{**docker, **more})


@pytest.mark.timeout(60)
@pytest.mark.parametrize("network", [None, "inner"])
async def test_a_session_has_a_container_of_its_own_that_ends_with_it(
    nats_server: NatsServer, bus: Bus, engine: Engine, tmp_path: Path, network: str | None
) -> None:
    executors = settings(engine, tmp_path, network=network, host_config={"Memory": 1 << 30}, user="1000")
    user = Frontend(bus)
    async with streams.running(nats_server.url, executors):
        session = await user.open(workspace="project")
        (container,) = engine.containers.values()
        pid = container.process.pid if container.process is not None else 0
        await user.command("agent.prompt", {"text": "say hello"})
        ended = await user.until("agent", "turn", timeout=15, generation=1, state="ended")
        created = await user.command("workspace.file-create", {"path": "a.txt"})
        await user.command("session.close", budget_ms=20_000)

    assert container.config["Labels"] == {LABEL: session}
    assert container.config["User"] == "1000"
    assert container.config["HostConfig"]["Memory"] == 1 << 30
    assert ended["reason"] == "end_turn"
    assert created["success"] is True
    assert (tmp_path / "work" / "project" / "a.txt").exists()
    assert engine.containers == {}
    assert not alive(pid)


@pytest.mark.timeout(60)
async def test_a_killed_service_finds_its_container_again_and_the_turn_goes_on(
    nats_server: NatsServer, bus: Bus, engine: Engine, tmp_path: Path
) -> None:
    user = Frontend(bus)
    async with process(nats_server.url, settings(engine, tmp_path), tmp_path) as service:
        await user.open()
        answer = await asked(user)
        before = list(engine.containers)
        await service.kill()
        # An engine that was started anew publishes the ports elsewhere.
        for link in next(iter(engine.containers.values())).links.values():
            await link.down()
            link.port = 0
            await link.up()
        await service.start()
        await eventually(lambda: decided(user, answer), timeout=25)
        ended = await user.until("agent", "turn", timeout=15, generation=1, state="ended")
        after = list(engine.containers)
        await user.command("session.close", budget_ms=20_000)

    assert ended["reason"] == "end_turn"
    assert after == before
    assert engine.containers == {}


@pytest.mark.timeout(60)
async def test_a_container_that_ends_fails_its_session_and_an_engine_that_is_away_does_not(
    nats_server: NatsServer, bus: Bus, engine: Engine, tmp_path: Path
) -> None:
    user = Frontend(bus)
    async with streams.running(nats_server.url, settings(engine, tmp_path)):
        session = await user.open()
        (container,) = engine.containers.values()
        await engine.down()
        for link in container.links.values():
            link.cut()
        await eventually(lambda: file_made(user), timeout=15)
        await engine.up()
        await container.stop(5)
        await eventually(lambda: failed(user, session), timeout=30)

    assert engine.containers == {}


async def failed(user: Frontend, session: str) -> bool:
    return bool((await user.rpc("get", {"session_id": session}))["state"] == "failed")


@pytest.mark.timeout(30)
async def test_why_a_container_cannot_be_had_is_told_to_whoever_opens_and_none_is_left(
    nats_server: NatsServer, bus: Bus, engine: Engine, tmp_path: Path
) -> None:
    engine.images["broken"] = [sys.executable, "-c", "exit(3)"]
    for image, message in (("absent", "No such image: absent"), ("broken", "does not run: exit code 3")):
        async with streams.running(nats_server.url, settings(engine, tmp_path, image=image)):
            with pytest.raises(TielineError, match=message):
                await Frontend(bus).rpc("open")
        assert engine.containers == {}
    await engine.down()
    async with streams.running(nats_server.url, settings(engine, tmp_path)):
        with pytest.raises(TielineError, match="container engine cannot be reached"):
            await Frontend(bus).rpc("open")


@pytest.mark.timeout(60)
async def test_a_service_that_is_killed_while_it_opens_leaves_no_container(
    nats_server: NatsServer, bus: Bus, engine: Engine, tmp_path: Path
) -> None:
    engine.images[IMAGE] = [sys.executable, "-c", "import time; time.sleep(600)"]  # never ready
    async with process(nats_server.url, settings(engine, tmp_path), tmp_path) as service:
        opening = asyncio.create_task(Frontend(bus).rpc("open"))
        await eventually(lambda: any(one.running for one in engine.containers.values()), timeout=10)
        await service.kill()
        await service.start()
        await eventually(lambda: not engine.containers, timeout=25)
        opening.cancel()  # nobody is there to answer it
        await asyncio.wait([opening])
