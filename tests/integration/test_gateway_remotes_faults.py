"""Remotes while something breaks: the broker, a lease, a replica, a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import httpx
import pytest
from tieline import Client, Remote
from tieline_gateway.app import app
from tieline_gateway.config import Config, Limits
from tieline_protocol import bus as buses
from tieline_protocol import jetstream, jsontext, leases, streams, subjects
from tieline_protocol.bus import Bus, BusSettings
from tieline_protocol.service import Common, running

from tests.support.eventually import eventually
from tests.support.gateway import SECRET, Raw, frontend, gateway, token
from tests.support.nats_server import NatsServer
from tests.support.raw_remote import asked, call, echoing, ended, register, remotes, say, told


async def records(bus: Bus) -> list[dict[str, Any]]:
    entries = await jetstream.Bucket(bus, subjects.BUCKET_REMOTES).entries("*.*")
    return [jsontext.loads(entry.value) for entry in entries]


async def works(caller: Raw, name: str = "browser") -> bool:
    """Whether a call comes back."""
    payload = {"remotename": name, "function": "echo", "args": {"value": 7}, "timeout_ms": 2_000}
    answer = await caller.ask("remote-call", payload, timeout=8)
    if answer["type"] != "response":
        return False
    return (await ended(caller, answer["payload"]["requestId"])).get("result") == 7


@pytest.mark.timeout(30)
async def test_registrations_and_calls_live_on_when_the_broker_restarts(nats_server: NatsServer) -> None:
    """B33"""
    async with (
        remotes(nats_server.url),
        gateway(nats_server.url) as url,
        frontend(url) as owner,
        frontend(url) as caller,
    ):
        await register(owner)
        under_way = await call(caller, timeout_ms=5_000)
        await asked(owner, under_way)
        await nats_server.restart(kill=True)
        end = await ended(caller, under_way, 6)
        async with echoing(owner):
            await eventually(lambda: works(caller), 15)

        assert end["code"] == "unavailable"
        assert told(owner, "remote-replaced") == []


@pytest.mark.timeout(30)
async def test_a_result_that_comes_while_the_broker_is_away_is_told_later(nats_server: NatsServer) -> None:
    async with (
        remotes(nats_server.url),
        gateway(nats_server.url) as url,
        frontend(url) as owner,
        frontend(url) as caller,
    ):
        await register(owner)
        id = await call(caller, timeout_ms=20_000)
        await asked(owner, id)
        await nats_server.stop()
        assert (await ended(caller, id))[
            "code"
        ] == "unavailable"  # what becomes of it is not known to the caller
        await say(owner, id, result=1)
        await nats_server.start()
        async with echoing(owner):
            await eventually(lambda: works(caller), 15)


@pytest.mark.timeout(30)
async def test_who_was_replaced_while_the_broker_was_away_is_told_when_it_is_back(
    nats_server: NatsServer, bus: Bus
) -> None:
    async with remotes(nats_server.url), gateway(nats_server.url) as url, frontend(url) as owner:
        await register(owner)
        [record] = await records(bus)
        [entry] = await jetstream.Bucket(bus, subjects.BUCKET_REMOTES).entries("*.*")
        await nats_server.restart()
        await bus.wait_connected()
        heir = {**record, "connection": "elsewhere", "registration": "newer"}
        await jetstream.Bucket(bus, subjects.BUCKET_REMOTES).put(entry.key, jsontext.dumps(heir))

        [lost] = await owner.until(lambda: told(owner, "remote-replaced"), 10)
        assert lost == {"remotename": "browser"}


@pytest.mark.timeout(40)
async def test_a_gateway_whose_lease_was_lost_registers_its_remotes_again(
    nats_server: NatsServer, bus: Bus
) -> None:
    async with (
        remotes(nats_server.url),
        gateway(nats_server.url) as url,
        frontend(url) as owner,
        frontend(url) as caller,
    ):
        await register(owner)
        await register(owner, "second")
        [first, _] = await records(bus)
        pending = await call(caller, timeout_ms=30_000)
        await asked(owner, pending)

        lease = subjects.process_key(first["gateway"])
        await jetstream.Bucket(bus, subjects.BUCKET_PROCESSES).delete(lease)

        assert (await ended(caller, pending, 10))["code"] == "disconnected"

        async def again() -> bool:
            now = await records(bus)
            return len(now) == 2 and first["registration"] not in {one["registration"] for one in now}

        await eventually(again, 15)
        async with echoing(owner):
            await eventually(lambda: works(caller), 10)
            await eventually(lambda: works(caller, "second"), 10)
        assert told(owner, "remote-replaced") == []


async def test_a_registration_that_outlived_its_connection_goes_at_the_first_call(
    nats_server: NatsServer, bus: Bus
) -> None:
    async with (
        remotes(nats_server.url),
        gateway(nats_server.url) as url,
        frontend(url) as owner,
        frontend(url) as caller,
    ):
        await register(owner)
        [record] = await records(bus)
        [entry] = await jetstream.Bucket(bus, subjects.BUCKET_REMOTES).entries("*.*")
        await owner.ask("remote-disconnect", {"remotename": "browser"})
        dead = {**record, "connection": "dead"}
        await jetstream.Bucket(bus, subjects.BUCKET_REMOTES).put(entry.key, jsontext.dumps(dead))

        id = await call(caller)
        assert (await ended(caller, id))["code"] == "disconnected"

        async def gone() -> bool:
            return await records(bus) == []

        await eventually(gone)


async def test_a_call_whose_replica_is_gone_is_cancelled_at_its_owner_and_refused_later(
    nats_server: NatsServer,
) -> None:
    async with gateway(nats_server.url) as url, frontend(url) as owner, contextlib.AsyncExitStack() as stack:
        replica = await stack.enter_async_context(contextlib.AsyncExitStack())
        await replica.enter_async_context(remotes(nats_server.url))
        await register(owner)
        async with frontend(url) as caller:
            id = await call(caller)
            await asked(owner, id)
            await replica.aclose()

            assert (await ended(caller, id))["code"] == "unavailable"
            await owner.until(lambda: told(owner, "remote-call-cancel"))
            late = await owner.ask("remote-call-result", {"requestId": id, "result": 1})
            assert late["payload"]["code"] == "not_found"


async def test_a_call_waits_for_a_replica_that_is_about_to_come(nats_server: NatsServer) -> None:
    async with gateway(nats_server.url) as url, frontend(url) as owner, frontend(url) as caller:
        async with remotes(nats_server.url):
            await register(owner)
        pending = asyncio.create_task(call(caller))
        async with remotes(nats_server.url), echoing(owner):
            assert (await ended(caller, await pending))["result"] == 1


async def test_a_remote_is_called_through_another_gateway(nats_server: NatsServer) -> None:
    async with (
        remotes(nats_server.url),
        remotes(nats_server.url),
        gateway(nats_server.url) as here,
        gateway(nats_server.url) as there,
        frontend(here) as owner,
        frontend(there) as caller,
        echoing(owner),
    ):
        await register(owner)
        ids = [await call(caller, number) for number in range(20)]

        assert [(await ended(caller, id))["result"] for id in ids] == list(range(20))


async def test_a_gateway_that_stops_ends_the_calls_of_its_connections_at_once(
    nats_server: NatsServer,
) -> None:
    async with remotes(nats_server.url), gateway(nats_server.url) as there, frontend(there) as caller:
        async with contextlib.AsyncExitStack() as owners:
            async with gateway(nats_server.url) as here:
                owner = await owners.enter_async_context(frontend(here))
                await register(owner)
                id = await call(caller)
                await asked(owner, id)
                began = time.monotonic()
            end = await ended(caller, id, 2)

        assert end["code"] == "disconnected"
        assert time.monotonic() - began < 4
        assert (await caller.ask("remote-list"))["payload"] == {"remotes": []}


@pytest.mark.timeout(20)
async def test_a_script_serves_again_after_its_gateway_was_replaced(nats_server: NatsServer) -> None:
    remote = Remote("steady")

    @remote.function
    async def ping() -> str:
        "Answer."
        return "pong"

    async with remotes(nats_server.url), contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(contextlib.AsyncExitStack())
        url = await first.enter_async_context(gateway(nats_server.url))
        port = int(url.rsplit(":", 1)[1].split("/")[0])
        async with Client(url, token()) as owner, owner.serve(remote):
            assert await owner.call("steady", "ping") == "pong"
            await first.aclose()
            await stack.enter_async_context(gateway(nats_server.url, port=port))

            async def answers() -> bool:
                with contextlib.suppress(Exception):
                    return await owner.call("steady", "ping", timeout_ms=1_000) == "pong"
                return False

            await eventually(answers, 12)


async def test_a_gateway_is_not_ready_before_its_lease_is_confirmed(nats_server: NatsServer) -> None:
    config = Config(nats_server.url, SECRET, port=0, limits=Limits(drain_seconds=0.1))
    async with (
        httpx.AsyncClient() as http,
        buses.connect(BusSettings(nats_server.url, "test")) as bus,
        running(Common("gateway"), app(config)) as facts,
    ):
        before = await http.get(f"{facts['health_url']}/readyz")
        await streams.ensure(bus, streams.StreamLimits())

        async def ready() -> bool:
            return (await http.get(f"{facts['health_url']}/readyz")).status_code == 200

        await eventually(ready, 5)

    assert before.status_code == 503
    assert "lease" in before.text


async def test_a_gateway_that_is_not_sure_to_be_alive_hands_no_call_over(
    nats_server: NatsServer, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        remotes(nats_server.url),
        gateway(nats_server.url) as url,
        frontend(url) as owner,
        frontend(url) as caller,
    ):
        await register(owner)
        with monkeypatch.context() as patch:
            patch.setattr(leases.ProcessLease, "may_act", lambda lease: lease.kind != "gateway")
            id = await call(caller)
            assert (await ended(caller, id))["code"] == "disconnected"
        assert told(owner, "remote-call") == []
        async with echoing(owner):
            assert await works(caller)


async def test_a_call_while_the_broker_is_away_is_unavailable_and_its_id_free_again(
    nats_server: NatsServer, bus: Bus
) -> None:
    async with gateway(nats_server.url) as url, frontend(url) as caller:
        await nats_server.stop()
        payload = {"remotename": "browser", "function": "echo", "args": {}}
        for count in (1, 2):
            await caller.send(id="same", action="remote-call", payload=payload)
            errors = await caller.until(
                lambda count=count: (
                    e if len(e := [f for f in caller.frames if f["type"] == "error"]) == count else None
                )
            )

    assert [one["payload"]["code"] for one in errors] == ["unavailable"] * 2
