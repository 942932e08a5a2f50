"""The gateway as people run it: a process that says when it is ready, stops in order, and dies of bad settings."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil
import pytest
from tieline_protocol.bus import Bus
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.support.eventually import eventually
from tests.support.gateway import SECRET, Raw, frontend, token
from tests.support.nats_server import NatsServer
from tests.support.owner import owning
from tests.support.process import Process


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET + b"\n")
    return path


def command(nats_url: str, secret: Path, *more: str) -> list[str]:
    where = ["--nats-url", nats_url, "--port", "0", "--jwt-secret-file", str(secret)]
    return [*where, "--allow-no-origin", "--drain-seconds", "0.5", *more]


pytestmark = pytest.mark.timeout(40)


async def get(url: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.get(url)


async def handshake(url: str) -> int:
    """The status with which the gateway answers somebody new."""
    try:
        async with connect(url, proxy=None):
            return 101
    except InvalidStatus as exc:
        return exc.response.status_code


async def test_sigterm_tells_every_viewer_to_come_back_and_ends_with_0(
    nats_server: NatsServer, tmp_path: Path, secret: Path
) -> None:
    async with (
        owning(nats_server.url) as owner,
        Process("tieline_gateway", tmp_path, command(nats_server.url, secret), timeout=25) as process,
        contextlib.AsyncExitStack() as stack,
    ):
        url = process.facts["url"]
        fronts = [await stack.enter_async_context(frontend(url)) for _ in range(20)]
        for front in fronts:
            await front.ask("session.subscribe", {"session_id": "s1"})
        await owner.agent.emit({"type": "message_chunk", "n": 1})
        for front in fronts:
            await front.until(lambda front=front: front.numbers())  # type: ignore[misc]
        code = await process.stop()
        for front in fronts:
            await front.done

    assert code == 0
    assert {front.socket.close_code for front in fronts} == {4000}
    waits = [orjson.loads(front.socket.close_reason or "")["retry_after_ms"] for front in fronts]
    assert all(0 < wait <= 5_000 for wait in waits)
    assert len(set(waits)) > 1


async def test_while_it_stops_new_sockets_get_503_and_awaited_answers_still_come(
    nats_server: NatsServer, tmp_path: Path, secret: Path
) -> None:
    drain = ("--drain-seconds", "3")
    async with (
        owning(nats_server.url) as owner,
        Process("tieline_gateway", tmp_path, command(nats_server.url, secret, *drain), timeout=25) as process,
        frontend(process.facts["url"]) as front,
    ):
        go = asyncio.Event()

        async def wait(request: object) -> dict[str, Any]:
            await go.wait()
            return {"success": True}

        owner.handlers["git.commit"] = wait
        await front.send(id="c", action="git.commit", payload={"session_id": "s1", "message": "m"})
        await eventually(lambda: owner.asked)
        process.signal(signal.SIGTERM)

        while (status := await handshake(process.facts["url"])) == 101:
            pass
        ready = await get(f"{process.facts['health_url']}/readyz")
        go.set()
        told = await front.answer_to("c")
        assert await process.wait() == 0

    assert status == ready.status_code == 503
    assert told["payload"] == {"success": True}
    assert front.socket.close_code == 4000


async def test_it_is_not_ready_while_the_broker_is_away_and_ready_again_after(
    nats_server: NatsServer, bus: Bus, tmp_path: Path, secret: Path
) -> None:
    async with Process("tieline_gateway", tmp_path, command(nats_server.url, secret), timeout=25) as process:
        health = process.facts["health_url"]
        assert (await get(f"{health}/readyz")).status_code == 200
        await nats_server.stop()

        while (await get(f"{health}/readyz")).status_code != 503:
            pass
        assert (await get(f"{health}/livez")).status_code == 200
        await nats_server.start()
        while (await get(f"{health}/readyz")).status_code != 200:
            pass
        async with frontend(process.facts["url"]) as front:
            told = await front.ask("session.get", {"session_id": "s1"})
        metrics = (await get(f"{health}/metrics")).text
        code = await process.stop()

    assert told["payload"]["code"] == "not_found"
    assert 'tieline_gateway_requests_total{action="auth",outcome="ok"} 1.0' in metrics
    assert code == 0


@pytest.mark.parametrize(
    ("content", "more", "said"),
    [
        (b"short", (), "at least 32 bytes"),
        (None, (), "No such file"),
        (SECRET, ("--origins", "*"), "not an origin"),
        (SECRET, ("--origins", "http://app.example/path"), "not an origin"),
    ],
)
async def test_it_dies_of_bad_settings_and_says_which(
    tmp_path: Path, content: bytes | None, more: tuple[str, ...], said: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    args = command("nats://127.0.0.1:1", path, *more)
    async with Process("tieline_gateway", tmp_path, args, ready=False) as process:
        code = await process.wait(25)

    assert code != 0
    assert said in " ".join(process.log.replace("│", " ").split())


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_2000_idle_connections_cost_at_most_16_kib_each(
    nats_server: NatsServer, tmp_path: Path, secret: Path
) -> None:
    async with (
        Process("tieline_gateway", tmp_path, command(nats_server.url, secret), timeout=25) as process,
        contextlib.AsyncExitStack() as stack,
    ):
        url = process.facts["url"]

        async def some(count: int) -> None:
            for _ in range(count):
                socket = await stack.enter_async_context(connect(url, proxy=None, ping_interval=None))
                await Raw(socket).send(id="1", action="auth", payload={"token": token()})
                await socket.recv()

        await some(200)
        before = psutil.Process(process.pid).memory_info().rss
        await some(2_000)
        grown = psutil.Process(process.pid).memory_info().rss - before

    assert grown / 2_000 <= 16 * 1024
