"""The limit of 30 seconds for a call, at its real value: for a frontend and for the model."""

from __future__ import annotations

import time

import pytest
from tieline_agent.limits import Limits
from tieline_protocol.bus import Bus

from tests.support.gateway import frontend, gateway
from tests.support.model import calling, model_server, saying
from tests.support.nats_server import NatsServer
from tests.support.raw_remote import asked, call, ended, register, remotes, say, told
from tests.support.threads import Chat, config, remote, replica

pytestmark = [pytest.mark.long, pytest.mark.timeout(60)]


async def test_a_call_times_out_after_thirty_seconds_and_what_comes_later_is_dropped(
    nats_server: NatsServer, bus: Bus
) -> None:
    """B04: at the real 30 s. Late, second and crossed answers reach nobody; the socket stays."""
    async with (
        remotes(nats_server.url),
        gateway(nats_server.url) as url,
        frontend(url) as owner,
        frontend(url) as caller,
    ):
        await register(owner)
        first = await call(caller, 1)
        began = time.monotonic()
        heard = await asked(owner, first)
        end = await ended(caller, first, 32)
        took = time.monotonic() - began
        second = await call(caller, 2)
        await asked(owner, second)
        await say(owner, first, result="late")
        await say(owner, first, result="later")
        late = await owner.ask("remote-call-result", {"requestId": first, "result": "as a request"})
        await say(owner, second, result="second")

        assert (end["code"], 29 < took < 31) == ("timeout", True), took
        assert 29_000 < heard["deadline_ms"] <= 30_000
        assert late["payload"]["code"] == "not_found"
        assert (await ended(caller, second))["result"] == "second"
        assert [one["requestId"] for one in told(caller, "remote-call-result")] == [first, second]
        assert [one["requestId"] for one in told(owner, "remote-call-cancel")] == [first]


async def test_a_tool_that_never_answers_is_a_string_for_the_model_after_thirty_seconds(
    nats_server: NatsServer, bus: Bus
) -> None:
    """B04: as the model reads it; the run goes on."""
    async with (
        model_server(calling(("browser__echo", {"value": 1})), saying("It did not answer")) as model,
        remotes(nats_server.url),
        gateway(nats_server.url) as url,
        frontend(url) as owner,
        replica(config(nats_server.url, model.url, limits=Limits())),
    ):
        await register(owner)
        chat = Chat(bus, "ada")
        await chat.create()
        began = time.monotonic()
        run = await chat.say("ask the browser", remote("browser"))
        ending = await chat.ended(run, 40)
        took = time.monotonic() - began
        results = [m["content"] for m in model.requests[-1]["messages"] if m["role"] == "tool"]

        assert ending["reason"] == "answer"
        assert 29 < took < 33, took
        assert len(results) == 1
        assert results[0].startswith("error: timeout: ")
