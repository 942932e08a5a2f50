"""B94: clocks of others are wrong, and our own wall clock jumps; order and time limits do not care."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from tieline_protocol.bus import Bus

from tests.support import streams
from tests.support.agentctl import Agentctl, event
from tests.support.clockstep import HOUR, ClockStep, compiler
from tests.support.deployment import Deployment
from tests.support.gateway import frontend
from tests.support.nats_server import NatsServer
from tests.support.people import events, joined, permission, turns_end_as_if_nothing_had_been
from tests.support.raw_remote import asked, call, ended, register, say
from tests.support.streams import Frontend

pytestmark = [pytest.mark.timeout(60), pytest.mark.long]

NOW = 1_700_000_000
ODD: list[Any] = [
    NOW + 600,
    NOW - 3600,
    0,
    None,
    NOW * 1000,
    "2023-11-14T22:13:20.5Z",
    "yesterday",
    -1,
    1e300,
]


async def test_events_keep_their_order_whatever_the_daemon_says_the_time_is(
    nats_server: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    """B94: ahead, behind, zero, missing, milliseconds and RFC 3339, on both sockets."""
    async with Agentctl() as daemon, streams.running(nats_server.url, streams.executors(daemon, tmp_path)):
        user = Frontend(bus)
        await user.open()
        for number, when in enumerate(ODD):
            stamp = {} if when is None else {"timestamp": when}
            daemon.agent[-1].send(event("reasoning", text=f"{number}.", **stamp))
            daemon.workspace[-1].send({"type": "file_change", "path": f"f{number}", **stamp})
        last = len(ODD) - 1
        await user.until("agent", "reasoning", text=f"{last}.")
        await user.until("workspace", "file_change", path=f"f{last}")
        told = [one["text"] for one in await user.events("agent", "reasoning")]
        files = [one["path"] for one in await user.events("workspace", "file_change")]

    assert told == [f"{number}." for number in range(len(ODD))]
    assert files == [f"f{number}" for number in range(len(ODD))]


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> ClockStep:
    if not sys.platform.startswith("linux") or compiler() is None:
        pytest.skip("a clock is stepped by a library that a C compiler makes, on Linux")
    return ClockStep(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="module")
def cluster(clock: ClockStep, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Every process of ours has the clock that a test steps."""
    deployment = Deployment(tmp_path_factory.mktemp("clocks"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in clock.environment.items():
            patch.setenv(name, value)
        asyncio.run(deployment.__aenter__())
    yield deployment
    asyncio.run(deployment.__aexit__())


@pytest.mark.parametrize("step", [HOUR, pytest.param(-HOUR, marks=pytest.mark.long)])
async def test_our_wall_clock_may_jump_while_calls_and_turns_are_under_way(
    cluster: Deployment, clock: ClockStep, step: int
) -> None:
    """B94"""
    async with contextlib.AsyncExitStack() as stack:
        front = await stack.enter_async_context(joined(cluster.gateway_url, cluster.token()))
        owner = await stack.enter_async_context(joined(cluster.gateway_url, cluster.token()))
        assert (await register(owner))["type"] == "response"
        requests = [await call(front, number) for number in range(5)]
        for request in requests:
            await asked(owner, request)
        opened = await front.ask("session.open", {"workspace": f"step{step}"}, timeout=30)
        session = opened["payload"]["session_id"]
        await front.ask("session.subscribe", {"session_id": session, "cursors": {"agent": "start"}})
        prompt = {"session_id": session, "text": "say one\nask go on?\nsay two"}
        assert (await front.ask("agent.prompt", prompt, timeout=20))["type"] == "response"
        await front.until(lambda: permission(front, session), 20)

        clock.set(step)
        try:
            assert await is_let_in(cluster, time.time() + step + 600)  # so the clock of the gateway has moved
            assert not await is_let_in(cluster, time.time() + step - 600)
            # Some renewals and scans of leases: who measured by the wall clock would have lost all of them by now.
            await asyncio.wait({front.done}, timeout=2.5)
            assert not front.done.done()
            assert not [one for one in front.frames if one.get("action") == "remote-call-result"]
            for request in requests:
                await say(owner, request, result=request)
                assert (await ended(front, request, 10))["result"] == request
            await turns_end_as_if_nothing_had_been(front, [session])
            assert {end["reason"] for end in events(front, session, "turn") if end["state"] == "ended"} == {
                "end_turn"
            }
            assert all(process.code is None for process in cluster.services.values())
            assert "lease of this process has expired" not in cluster.log
            await front.ask("session.close", {"session_id": session}, timeout=20)
        finally:
            clock.set(0)


async def is_let_in(cluster: Deployment, expiry: float) -> bool:
    secret = cluster.secrets["gateway-jwt"]["secret"]
    token = jwt.encode({"sub": "ann", "exp": int(expiry)}, secret, algorithm="HS256")
    async with frontend(cluster.gateway_url, auth=False) as raw:
        return (await raw.ask("auth", {"token": token}))["type"] == "response"


async def test_a_token_from_a_clock_that_is_a_little_ahead_is_taken(cluster: Deployment) -> None:
    """B94: issued 30 s in the future."""
    secret = cluster.secrets["gateway-jwt"]["secret"]
    now = int(time.time())
    token = jwt.encode({"sub": "ann", "iat": now + 30, "exp": now + 600}, secret, algorithm="HS256")
    async with joined(cluster.gateway_url, token) as front:
        assert (await front.ask("session.list"))["type"] == "response"
