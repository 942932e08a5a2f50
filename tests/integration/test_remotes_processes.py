"""Remotes while processes die: a script, gateways, a replica, each a real process that is killed or stopped."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tieline_protocol import subjects
from tieline_protocol.bus import Bus
from tieline_protocol.lease import Terms

from tests.support.eventually import eventually
from tests.support.gateway import SECRET, Raw, frontend, gateway, token
from tests.support.nats_server import NatsServer
from tests.support.process import Process
from tests.support.raw_remote import asked, call, echoing, ended, register, remotes, say, told

pytestmark = pytest.mark.timeout(40)

LEASE = ("--lease-seconds", "3")
ROOT = Path(__file__).parents[2]
Make = Callable[[str], Process]


@pytest.fixture
def gateway_process(nats_server: NatsServer, tmp_path: Path) -> Make:
    """A gateway as people run it, by name."""
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    where = ["--nats-url", nats_server.url, "--port", "0", "--jwt-secret-file", str(secret), *LEASE]
    return lambda name: Process("tieline_gateway", tmp_path, [*where, "--allow-no-origin"], name=name)


@pytest.fixture
def replica_process(nats_server: NatsServer, tmp_path: Path) -> Make:
    """A replica of the remotes service as people run it, by name."""
    where = ["--nats-url", nats_server.url, *LEASE]
    return lambda name: Process("tieline_remotes", tmp_path, where, name=name)


@pytest.fixture
async def url(nats_server: NatsServer, bus: Bus) -> AsyncIterator[str]:
    """A gateway in this process, for whoever calls."""
    async with gateway(nats_server.url, lease=Terms(3)) as url:
        yield url


async def names(front: Raw) -> list[str]:
    return [one["remotename"] for one in (await front.ask("remote-list"))["payload"]["remotes"]]


async def nobody(front: Raw) -> bool:
    """Whether no remote is listed (any more: the end of a call and the change of the list are told apart)."""
    return await names(front) == []


async def works(caller: Raw, name: str = "browser") -> bool:
    """Whether a call comes back with its own result."""
    payload = {"remotename": name, "function": "echo", "args": {"value": 7}, "timeout_ms": 2_000}
    answer = await caller.ask("remote-call", payload, timeout=15)
    if answer["type"] != "response":
        return False
    return (await ended(caller, answer["payload"]["requestId"])).get("result") == 7


async def ends(caller: Raw, ids: list[str], within: float) -> dict[str, Any]:
    """The codes with which calls ended, each once, and how long the last one took."""
    began = time.monotonic()
    found = [await ended(caller, id, within) for id in ids]
    took = time.monotonic() - began
    return {"codes": {end["code"] for end in found}, "seconds": round(took, 2)}


async def test_a_script_that_is_killed_ends_its_calls_within_a_second(
    nats_server: NatsServer, url: str, tmp_path: Path
) -> None:
    """B05: (d) kill -9 of the client's process, five calls pending."""
    env = {"PYTHONPATH": str(ROOT)}
    async with (
        remotes(nats_server.url),
        frontend(url) as caller,
        Process("tests.support.stuck_remote", tmp_path, [url, token(), "box"], env) as served,
    ):
        payload = {"remotename": "box", "function": "wait"}
        answers = [
            await caller.ask("remote-call", {**payload, "args": {"value": number}}) for number in range(5)
        ]
        ids = [answer["payload"]["requestId"] for answer in answers]
        served.signal(signal.SIGKILL)
        told_so = await ends(caller, ids, 1)

        assert told_so["codes"] == {"disconnected"}
        assert told_so["seconds"] < 1

        async def gone() -> bool:
            return await names(caller) == []

        await eventually(gone)


async def test_calls_of_gateways_that_are_killed_or_frozen_end_once_the_lease_has_expired(
    nats_server: NatsServer, url: str, gateway_process: Make
) -> None:
    """B43: and what the frozen one still hears of them once it runs again changes nothing."""
    async with (
        remotes(nats_server.url),
        gateway_process("killed") as killed,
        gateway_process("frozen") as frozen,
        frontend(url) as caller,
        contextlib.AsyncExitStack() as owners,
    ):
        here = await owners.enter_async_context(frontend(killed.facts["url"]))
        there = await owners.enter_async_context(frontend(frozen.facts["url"]))
        await register(here, "here")
        await register(there, "there")
        ids = [await call(caller, number, name) for number in range(3) for name in ("here", "there")]
        asked_there = await asked(there, ids[1])
        frozen.signal(signal.SIGSTOP)
        killed.signal(signal.SIGKILL)
        told_so = await ends(caller, ids, 5)
        await say(there, asked_there["requestId"], result="too late")

        assert told_so["codes"] == {"disconnected"}
        await eventually(lambda: nobody(caller))
        frozen.signal(signal.SIGCONT)
        await there.until(lambda: len(told(there, "remote-call-cancel")) >= 2, 10)
        async with echoing(there):
            await eventually(lambda: works(caller, "there"), 15)
        assert await names(caller) == ["there"]
        assert len([end for end in told(caller, "remote-call-result") if end["requestId"] in ids]) == len(ids)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        pytest.param(signal.SIGSTOP, id="frozen", marks=pytest.mark.long),
    ],
)
async def test_calls_of_a_replica_that_is_gone_end_at_both_sides_and_others_take_the_next(
    nats_server: NatsServer, url: str, replica_process: Make, how: signal.Signals
) -> None:
    async with (
        replica_process("first") as first,
        replica_process("second") as second,
        frontend(url) as owner,
        frontend(url) as caller,
    ):
        await register(owner)
        ids = [await call(caller, number) for number in range(8)]
        for id in ids:
            await asked(owner, id)
        lost = [id for id in ids if subjects.parse_request_id(id)[0] == first.facts["process"]]
        kept = [id for id in ids if id not in lost]
        first.signal(how)
        told_so = await ends(caller, lost, 5)

        assert told_so["codes"] <= {"unavailable"}
        for id in kept:
            await say(owner, id, result="kept")
            assert (await ended(caller, id))["result"] == "kept"
        await owner.until(
            lambda: {one["requestId"] for one in told(owner, "remote-call-cancel")} >= set(lost), 12
        )
        if how is signal.SIGSTOP:  # who slept takes calls again, and none of the old ones is heard of
            first.signal(signal.SIGCONT)
            await second.kill()
        async with echoing(owner):
            await eventually(lambda: works(caller), 25)
        heard = [end["requestId"] for end in told(caller, "remote-call-result")]
        assert len(set(heard)) == len(heard)
