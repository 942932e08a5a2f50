"""Service endpoints by the NATS services convention, as its tools see them."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from tieline_protocol import messages, subjects
from tieline_protocol.bus import Bus
from tieline_protocol.errors import Code, NoResponders, Refused
from tieline_protocol.messages import Request
from tieline_protocol.services import serving


async def ask(bus: Bus, endpoint: str, budget_ms: int = 2_000, raw: bytes | None = None) -> dict:
    request = Request(id="r1", user="ada", budget_ms=budget_ms, payload={"n": 1})
    received = await bus.request(subjects.rpc("demo", endpoint, "ada"), raw or request.encode(), 3)
    return messages.outcome(received.data)


async def double(request: Request) -> dict:
    return {"n": request.payload["n"] * 2, "user": request.user}


async def test_an_endpoint_answers_until_its_block_is_left(bus: Bus) -> None:
    async with serving(bus, name="demo", version="1.2.3", endpoints={"double": double}):
        assert await ask(bus, "double") == {"n": 2, "user": "ada"}

    with pytest.raises(NoResponders):
        await ask(bus, "double")


async def test_a_service_says_what_it_is_to_whoever_asks(bus: Bus) -> None:
    async with serving(bus, name="demo", version="1.2.3", endpoints={"double": double}) as service:
        await ask(bus, "double")
        for scope in ((), ("demo",), ("demo", service.id)):
            found = {
                verb: orjson.loads((await bus.request(subjects.service_verb(verb, *scope), b"", 2)).data)
                for verb in ("PING", "INFO", "STATS")
            }
            assert found["PING"] == {
                "name": "demo",
                "id": service.id,
                "version": "1.2.3",
                "metadata": {},
                "type": "io.nats.micro.v1.ping_response",
            }
            (endpoint,) = found["INFO"]["endpoints"]
            assert endpoint["subject"] == subjects.rpc_endpoint("demo", "double")
            assert endpoint["queue_group"] == "demo"
            assert found["STATS"]["type"] == "io.nats.micro.v1.stats_response"
            assert found["STATS"]["endpoints"][0]["num_requests"] == 1

        with pytest.raises(NoResponders):
            await bus.request(subjects.service_verb("PING", "other"), b"", 2)


async def test_one_slow_handler_delays_nobody(bus: Bus) -> None:
    """B31."""
    go = asyncio.Event()

    async def slow(_: Request) -> dict:
        await go.wait()
        return {}

    async with serving(bus, name="demo", version="1", endpoints={"slow": slow, "double": double}):
        waiting = [asyncio.create_task(ask(bus, "slow")) for _ in range(20)]
        async with asyncio.timeout(1):
            await ask(bus, "double")
        go.set()
        assert await asyncio.gather(*waiting) == [{}] * 20


async def test_errors_are_answers_and_are_counted(bus: Bus) -> None:
    async def no(_: Request) -> dict:
        raise Refused(Code.CONFLICT, "no")

    async def broken(_: Request) -> dict:
        raise ZeroDivisionError

    async def never(_: Request) -> dict:
        await asyncio.Event().wait()
        return {}

    endpoints = {"no": no, "broken": broken, "never": never}
    async with serving(bus, name="demo", version="1", endpoints=endpoints) as service:
        for endpoint, code in (("no", Code.CONFLICT), ("broken", Code.INTERNAL), ("never", Code.TIMEOUT)):
            with pytest.raises(Refused) as refused:
                await ask(bus, endpoint, 100)
            assert refused.value.code is code
        with pytest.raises(Refused) as refused:
            await ask(bus, "no", raw=b"not json")
        assert refused.value.code is Code.BAD_REQUEST
        assert [one["num_errors"] for one in service.stats()["endpoints"]] == [2, 1, 1]
        assert service.stats()["endpoints"][0]["last_error"].startswith("bad_request")
