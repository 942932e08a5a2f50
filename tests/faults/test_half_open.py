"""Nobody is there any more and no packet says so: neither FIN nor RST. Daemons and frontends that are half open."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import psutil
import pytest
from tieline_gateway.config import Limits as GatewayLimits
from tieline_protocol.bus import Bus
from tieline_protocol.errors import TielineError
from tieline_streams.config import Executors, Limits

from tests.support import streams
from tests.support.eventually import eventually
from tests.support.gateway import frontend, gateway
from tests.support.link import Link
from tests.support.nats_server import NatsServer
from tests.support.owner import owning
from tests.support.raw_remote import asked, call, ended, register, remotes, told
from tests.support.scripted_daemon import ScriptedDaemon
from tests.support.streams import Frontend

SHORT = Limits(heartbeat=0.4, dead=0.9, slow_retry=0.5)
REAL = Limits()


async def _found(user: Frontend, log: str) -> dict | None:
    return next((one for one in await user.events(log, "connection") if one["state"] == "waiting"), None)


def both_up(daemon: ScriptedDaemon, before: int) -> bool:
    return all(
        len(sockets) > before and not sockets[-1].closed.is_set()
        for sockets in (daemon.agent, daemon.workspace)
    )


async def _half_open_daemon(
    bus: Bus, broker: NatsServer, daemon: ScriptedDaemon, known: Executors, limits: Limits, how: str
) -> float:
    """Returns how long it took until the user knew."""
    async with streams.running(broker.url, known, limits):
        user = Frontend(bus)
        await user.open()
        await user.command("agent.prompt", {"text": "x"})
        daemon.text("before ")
        await user.until("agent", "message_chunk")
        daemon.script.answers["agent.stderr"] = None  # what is asked now is never answered
        pending = asyncio.create_task(user.command("agent.stderr", budget_ms=30_000))
        await eventually(lambda: daemon.agent[0].of("agent.stderr"))
        if how == "frozen":
            daemon.link.freeze()
        else:
            daemon.link.lose("up" if how == "unheard" else "down")
        began = time.monotonic()
        await eventually(lambda: _both_found(user), limits.dead + 10)
        took = time.monotonic() - began
        with pytest.raises(TielineError):
            await pending
        failed = time.monotonic() - began
        tried = len(daemon.agent)
        daemon.link.thaw()
        returned = time.monotonic()
        await eventually(lambda: both_up(daemon, tried), 10)
        up = time.monotonic() - returned
        daemon.text("after")
        daemon.finish()
        await user.until("agent", "turn", 10, state="ended", reason="end_turn")
        reasons = {(await _found(user, log) or {})["error"] for log in ("agent", "workspace")}
        texts = [one["text"] for one in await user.events("agent", "message_chunk")]

    print(
        f"\nhalf-open daemon ({how}) found after {took:.1f} s, both sockets up {up * 1000:.0f} ms after the return"
    )
    assert reasons == {f"nothing heard for {limits.dead:g} s"}
    assert texts == ["before ", "after"]
    assert failed < took + 1  # who waited for an answer is told with the rest
    assert up <= 3.5
    return took


async def _both_found(user: Frontend) -> bool:
    return all([await _found(user, log) for log in ("agent", "workspace")])


@pytest.mark.timeout(30)
@pytest.mark.parametrize("how", ["frozen", "unheard", "silent"])
async def test_a_daemon_that_is_half_open_is_found_and_the_turn_goes_on(
    bus: Bus, nats_server: NatsServer, daemon: ScriptedDaemon, known: Executors, how: str
) -> None:
    """The user sees `waiting`, then `up`; a request that was under way fails at once; whatever direction is dead."""
    assert await _half_open_daemon(bus, nats_server, daemon, known, SHORT, how) < 3


@pytest.mark.long
@pytest.mark.timeout(90)
@pytest.mark.parametrize("how", ["frozen", "unheard", "silent"])
async def test_a_daemon_that_is_half_open_is_found_within_10_s(
    bus: Bus, nats_server: NatsServer, daemon: ScriptedDaemon, known: Executors, how: str
) -> None:
    """The real limits."""
    assert await _half_open_daemon(bus, nats_server, daemon, known, REAL, how) <= 10


async def test_a_large_frame_on_a_slow_line_is_not_silence(
    bus: Bus, nats_server: NatsServer, daemon: ScriptedDaemon, known: Executors
) -> None:
    """It takes three times as long as a daemon may be silent, and its pongs wait behind it."""
    text = "x" * 400_000
    async with streams.running(nats_server.url, known, SHORT):
        user = Frontend(bus)
        await user.open()
        daemon.link.rate = len(text) / (3 * SHORT.dead)
        daemon.text(text)

        assert (await user.until("agent", "message_chunk"))["text"] == text
        assert len(daemon.agent) == 1  # it was never dialled again


# Frontends


@contextlib.asynccontextmanager
async def _through(url: str) -> AsyncIterator[tuple[Link, str]]:
    """A link before the gateway, and the address of it."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    async with Link(parts.hostname, parts.port) as link:
        yield link, f"ws://127.0.0.1:{link.port}{parts.path}"


async def _half_open_frontend(broker: NatsServer, limits: GatewayLimits, full: bool) -> float:
    """A frontend owns a remote and is asked by another one; then its cable is pulled. How long until all is known."""
    async with (
        owning(broker.url) as owner,
        remotes(broker.url),
        gateway(broker.url, limits=limits) as url,
        _through(url) as (link, far_url),
        frontend(far_url, ping_interval=None) as far,
        frontend(url) as near,
    ):
        await register(far)
        if full:
            await far.ask("session.subscribe", {"session_id": "s1"})
        pending = await call(near, timeout_ms=60_000)
        await asked(far, pending)
        link.freeze()
        began = time.monotonic()
        if full:
            for n in range(200):
                await owner.workspace.emit({"type": "shell_output", "n": n, "data": "x" * 60_000})
        end = await ended(near, pending, 60)
        await eventually(lambda: _gone(near), 60)
        took = time.monotonic() - began
        answered = await near.ask(
            "remote-call", {"remotename": "browser", "function": "echo", "args": {"value": 1}}
        )
        await eventually(lambda: _served(url) == 1, 15)  # the gateway has let go of it
        closed = time.monotonic() - began
        link.thaw()

    print(f"\nhalf-open frontend (full: {full}): its call ended and its remote went after {took:.1f} s")
    assert end["code"] == "disconnected"
    assert (answered["type"], answered["payload"]["code"]) == ("error", "not_found")
    assert closed < took + 11
    assert told(near, "remote-call-result") == [end]
    return took


def _served(url: str) -> int:
    """How many sockets the gateway has."""
    port = urlsplit(url).port
    sockets = psutil.Process().net_connections("tcp")
    return sum(one.laddr.port == port and one.status == psutil.CONN_ESTABLISHED for one in sockets)


async def _gone(front: object) -> bool:
    listed = await front.ask("remote-list")  # type: ignore[attr-defined]
    return listed["payload"]["remotes"] == []


async def test_a_large_frame_of_a_frontend_on_a_slow_line_is_not_silence(nats_server: NatsServer) -> None:
    """It takes three times as long as a frontend may be silent."""
    limits = GatewayLimits(ping_seconds=0.3, pong_seconds=0.5)
    async with (
        gateway(nats_server.url, limits=limits) as url,
        _through(url) as (link, far_url),
        frontend(far_url, ping_interval=None) as far,
    ):
        link.rate = 400_000 / 2.4
        answer = await far.ask("no.such.action", {"text": "x" * 400_000})

        assert answer["payload"]["code"] == "unknown_action"
        assert link.connections == 1


@pytest.mark.timeout(40)
@pytest.mark.parametrize("full", [False, True])
async def test_a_frontend_that_is_half_open_is_found_and_its_calls_and_remotes_end(
    nats_server: NatsServer, full: bool
) -> None:
    """B43: with a call pending, and with a full send buffer; whoever waits for it hears `disconnected`."""
    limits = GatewayLimits(
        drain_seconds=0.1, ping_seconds=0.5, pong_seconds=0.5, stuck_seconds=1, close_seconds=0.5
    )
    assert await _half_open_frontend(nats_server, limits, full) < 5


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("full", [False, True])
async def test_a_frontend_that_is_half_open_is_found_within_45_s(nats_server: NatsServer, full: bool) -> None:
    """B43: the real limits."""
    assert await _half_open_frontend(nats_server, GatewayLimits(drain_seconds=0.1), full) <= 45
