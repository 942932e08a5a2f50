"""The one way to start, watch and stop a service: as a process, and in this event loop."""

import asyncio
import contextlib
import json
import signal
import stat
from typing import Any

import httpx
import pytest
from tieline_protocol import bus as buses
from tieline_protocol.service import Common, Service, running, write_whole

from tests.support.eventually import eventually
from tests.support.process import Process

SAMPLE = """
import asyncio, contextlib, os, sys
from pathlib import Path
from tieline_protocol import bus, service

mode, url, ready = sys.argv[1], sys.argv[2], sys.argv[4]

async def fail_when_told():
    while not Path("fail").exists():
        await asyncio.sleep(0.01)
    raise RuntimeError("a task of the service failed")

async def for_ever():
    try:
        await asyncio.Event().wait()
    finally:
        Path("cancelled").touch()

@contextlib.asynccontextmanager
async def app(svc):
    if mode == "broken":
        raise RuntimeError("cannot start")
    async with bus.connect(bus.BusSettings(url, "sample")) as connected:
        svc.health.checks["broker"] = lambda: None if connected.connected else "the broker is away"
        svc.spawn(fail_when_told(), name="fails")
        svc.spawn(for_ever(), name="works")
        try:
            yield {"answer": 42, "token": "secret"}
        finally:
            await connected.flush() if connected.connected else None
            Path("left").touch()

service.run(service.Common("sample", ready_file=Path(ready)), app)
"""


@pytest.fixture
def sample(tmp_path):
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "sample_service.py").write_text(SAMPLE)

    def make(url, mode="works", **rest):
        return Process("sample_service", directory, [mode, url], **rest)

    make.directory = directory  # type: ignore[attr-defined]  # a place for what the sample writes
    return make


async def get(url):
    async with httpx.AsyncClient() as client:
        return await client.get(url)


async def test_a_service_starts_answers_its_probes_and_ends_on_sigterm(nats_server, sample):
    async with sample(nats_server.url) as process:
        assert (process.facts["answer"], process.facts["pid"]) == (42, process.pid)
        health = process.facts["health_url"]
        ready, live, metrics = [await get(f"{health}/{page}") for page in ("readyz", "livez", "metrics")]
        assert (ready.status_code, ready.json()) == (200, {"ready": True, "reasons": {}, "notes": {}})
        assert live.status_code == 200
        assert "tieline_bus_reconnects" in metrics.text
        assert stat.S_IMODE(process.ready_file.stat().st_mode) == 0o600

        assert await process.stop() == 0
    assert (sample.directory / "left").exists()
    assert (sample.directory / "cancelled").exists()
    lines = [json.loads(line) for line in process.log.splitlines()]
    assert [line["event"] for line in lines if line["event"] in ("ready", "stopping", "stopped")] == [
        *("ready", "stopping", "stopped")
    ]
    assert all(line["service"] == "sample" for line in lines)
    assert "secret" not in process.log


async def test_it_is_alive_but_not_ready_while_the_broker_is_away(nats_server, sample):
    async with sample(nats_server.url) as process:
        health = process.facts["health_url"]
        await nats_server.kill()

        async def unready():
            return (await get(f"{health}/readyz")).status_code == 503

        await eventually(unready)
        assert (await get(f"{health}/readyz")).json()["reasons"] == {"broker": "the broker is away"}
        assert (await get(f"{health}/livez")).status_code == 200
        await nats_server.start()
        await eventually(lambda: ready_again(health))
        assert await process.stop() == 0


async def ready_again(health):
    return (await get(f"{health}/readyz")).status_code == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_during_the_start_ends_it_in_order(nats_server, sample, number):
    await nats_server.kill()
    async with sample(nats_server.url, ready=False) as process:
        await eventually(lambda: "broker connection" in process.log)
        process.signal(number)

        assert await process.wait(5) == 0
    assert not process.ready_file.exists()


async def test_a_broker_that_comes_later_lets_it_start(nats_server, sample):
    await nats_server.kill()
    async with sample(nats_server.url, ready=False) as process:
        await eventually(lambda: "broker connection" in process.log)
        assert not process.ready_file.exists()
        await nats_server.start()
        await process.wait_ready()
        assert await process.stop() == 0


async def test_a_task_that_fails_ends_the_service_loudly(nats_server, sample):
    async with sample(nats_server.url) as process:
        (sample.directory / "fail").touch()

        assert await process.wait(5) == 1
    assert (sample.directory / "left").exists()
    assert "a task of the service failed" in process.log


async def test_a_service_that_cannot_start_ends_loudly(nats_server, sample):
    async with sample(nats_server.url, mode="broken", ready=False) as process:
        assert await process.wait(5) == 1
    assert "cannot start" in process.log


async def test_a_service_runs_in_this_loop_and_says_that_it_stops(nats_server):
    seen: dict[str, Any] = {}

    @contextlib.asynccontextmanager
    async def app(service: Service):
        seen["service"] = service
        assert service.health.reasons() == {"service": "starting"}
        async with buses.connect(buses.BusSettings(nats_server.url, "sample")):
            yield {"url": "x"}
            seen["at the end"] = service.health.reasons()

    async with running(Common("sample"), app) as facts:
        assert facts["url"] == "x"
        assert seen["service"].health.reasons() == {}
        seen["service"].health.notes["broker"] = lambda: "takes 1 MB only"
        told = (await get(f"{facts['health_url']}/readyz")).json()
        assert told == {"ready": True, "reasons": {}, "notes": {"broker": "takes 1 MB only"}}
    assert seen["at the end"] == {"service": "stopping"}


async def test_two_services_do_not_share_a_probe_port():
    @contextlib.asynccontextmanager
    async def app(service: Service):
        yield {}

    async with running(Common("one"), app) as one:
        port = int(one["health_url"].rpartition(":")[2])
        with pytest.RaisesGroup(OSError):
            async with running(Common("two", health_port=port), app):
                raise AssertionError("both on one port")


async def test_what_was_spawned_is_over_when_the_block_is_left():
    spawned = []

    @contextlib.asynccontextmanager
    async def app(service: Service):
        spawned.append(service.spawn(asyncio.Event().wait(), name="for ever"))  # type: ignore[arg-type]
        yield {}

    async with running(Common("one"), app):
        assert not spawned[0].done()
    assert spawned[0].cancelled()


def test_nobody_sees_half_a_file(tmp_path):
    path = tmp_path / "facts"
    write_whole(path, b"one")
    write_whole(path, b"two", 0o644)

    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]
