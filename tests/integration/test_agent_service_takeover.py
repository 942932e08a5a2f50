"""Several replicas of the agent service: one owner each thread, and somebody who goes on when it dies."""

import asyncio
import contextlib
import gc
import signal

import pytest
from tieline_protocol.bus import BusSettings
from tieline_protocol.errors import TielineError
from tieline_protocol.service import Common, running
from tieline_remotes.app import make as make_remotes
from tieline_remotes.config import Config as RemotesConfig

from tests.support.eventually import eventually
from tests.support.model import calling, dripping, model_server, saying, steps
from tests.support.process import Process
from tests.support.remote_owner import remote_owner
from tests.support.threads import Chat, config, function, remote, replica, serving_calls

CALC = remote("calc")


@pytest.fixture
async def model():
    async with model_server() as server:
        yield server


@pytest.fixture
async def owner(bus, nats_server):
    """Ada's remote `calc`, on a connection that the test plays."""
    remotes = RemotesConfig(BusSettings(nats_server.url, "remotes"), drain=0.2)
    async with running(Common("remotes"), make_remotes(remotes)), remote_owner(bus) as made:
        await made.connect("ada@example.org", "calc", [function("f"), function("stuck")])
        yield made


@pytest.fixture
def process(nats_server, model, tmp_path):
    """A replica as people run it, that a test may kill."""

    def make(name, *args):
        options = ["--nats-url", nats_server.url, "--openai-base-url", model.url, "--model", "m", *args]
        return Process("tieline_agent", tmp_path, options, name=name)

    return make


async def answering(called):
    if called.payload["function"] == "stuck":
        await called.cancelled.wait()
    else:
        await called.result("sunny")


async def test_two_replicas_that_are_asked_at_once_agree_on_one_owner(bus, nats_server, model):
    model.says(*[saying("ok")] * 8)
    settings = config(nats_server.url, model.url)
    async with replica(settings), replica(settings):
        chat = Chat(bus)
        await chat.create()
        payload = {"thread_id": chat.thread, "content": "hi"}
        asked = [chat.rpc("message", {**payload, "client_message_id": f"c{n}"}) for n in range(8)]
        for answered in await asyncio.gather(*asked):
            await chat.ended(answered["run_id"])
    openings = await chat.events("epoch")

    assert len(openings) == 1
    assert await chat.texts() == ["ok"] * 8


@pytest.mark.timeout(40)
async def test_a_replica_that_stops_hands_its_thread_over(bus, nats_server, model, process):
    """What the model had begun to say is closed; the next owner asks again."""
    model.says(dripping({"text": "slow "}, 0.02, 1_000), saying("second"))
    async with process("first", "--drain", "0.1") as first:
        chat = Chat(bus)
        await chat.create()
        run = await chat.say("hi")
        await chat.until("delta")
        async with replica(config(nats_server.url, model.url)):
            assert await first.stop() == 0
            ended = await chat.ended(run, 3)
    interrupted = await chat.until("message", interrupted=True)

    assert ended["reason"] == "answer"
    assert interrupted["content"].startswith("slow ")
    assert await chat.texts() == ["second"]
    assert [event["clean"] for event in await chat.events("epoch")] == [True, True]


@pytest.mark.timeout(40)
async def test_a_call_under_way_is_finished_before_the_thread_is_handed_over(
    bus, nats_server, model, owner, process
):
    model.says(calling(("calc__f", {})), saying("Sunny"))
    release = asyncio.Event()

    async def waiting(called):
        await release.wait()
        await called.result("sunny")

    async with serving_calls(owner, waiting) as came:
        async with process("first") as first:
            chat = Chat(bus)
            await chat.create()
            run = await chat.say("go", CALC)
            await eventually(lambda: came)
            first.signal(signal.SIGTERM)
            await eventually(lambda: "giving threads up" in first.log)
            release.set()
            assert await first.wait() == 0
        requests = len(model.requests)
        async with replica(config(nats_server.url, model.url)):
            ended = await chat.ended(run)

    assert (requests, len(came)) == (1, 1)
    assert ended["reason"] == "answer"
    assert await chat.texts() == ["", "Sunny"]
    assert [event["clean"] for event in await chat.events("epoch")] == [True, True]


@pytest.mark.timeout(40)
async def test_a_killed_replicas_run_goes_on_elsewhere(bus, nats_server, model, owner, process):
    """B59: killed with one call ended and one under way: none runs twice, and the provider takes the history."""
    model.says(calling(("calc__f", {}), ("calc__stuck", {})), saying("Sunny"), saying("hello"))
    async with serving_calls(owner, answering) as came, process("first") as first:
        chat = Chat(bus)
        await chat.create()
        run = await chat.say("go", CALC)
        await chat.until("tool_result", result="sunny")
        async with replica(config(nats_server.url, model.url)):
            await first.kill()
            ended = await chat.ended(run, 15)
            after = await chat.ask("hi")
    told = [message["content"] for message in model.requests[1]["messages"] if message["role"] == "tool"]

    assert (ended["reason"], after["reason"]) == ("answer", "answer")
    assert len(came) == 2
    assert told[0] == "sunny"
    assert told[1].startswith("error: unavailable: interrupted")
    assert [event["clean"] for event in await chat.events("epoch")] == [True, False]


@pytest.mark.timeout(40)
async def test_a_replica_killed_while_the_model_speaks_leaves_a_run_that_goes_on(
    bus, nats_server, model, process
):
    model.says(steps({"text": "Half a "}, {"stall": True}), saying("Whole"))
    async with process("first") as first:
        chat = Chat(bus)
        await chat.create()
        run = await chat.say("go")
        await chat.until("delta")
        await first.kill()
    async with replica(config(nats_server.url, model.url)):
        ended = await chat.ended(run, 15)
    interrupted = await chat.until("message", interrupted=True)

    assert (ended["reason"], interrupted["content"]) == ("answer", "Half a ")
    assert await chat.texts() == ["Whole"]


@pytest.mark.timeout(40)
async def test_a_stopped_replica_that_wakes_up_late_adds_nothing(bus, nats_server, model, process):
    """Another one has taken its thread meanwhile; what it still says does not belong to the log."""
    model.says(dripping({"text": "old "}, 0.05, 2_000), saying("new"))
    async with process("first") as first:
        chat = Chat(bus)
        await chat.create()
        run = await chat.say("go")
        await chat.until("delta")
        first.signal(signal.SIGSTOP)
        async with replica(config(nats_server.url, model.url)):
            await chat.ended(run, 15)
            first.signal(signal.SIGCONT)
            await eventually(lambda: "not ours any more" in first.log or "expired" in first.log)
            head = await chat.head()
        log = await chat.log()

    assert max(record.cursor.epoch for record in log) == head["epoch"]
    assert [event["reason"] for event in await chat.events("run") if event["state"] == "ended"] == ["answer"]
    assert await chat.texts() == ["new"]


@pytest.mark.timeout(60)
async def test_500_calls_at_once_all_come_back_though_garbage_is_collected_all_the_time(
    bus, nats_server, model, owner
):
    """B18: a task that nobody holds would vanish under way."""
    each, users = 50, [f"user{n}" for n in range(10)]
    wanted = "\n".join(f'call calc__f {{"n": {n}}}' for n in range(each))
    for user in users:
        await owner.connect(user, "calc", [function("f")], connection=user)

    gc.freeze()  # what was there before takes no part

    async def collecting():
        while True:
            gc.collect()
            await asyncio.sleep(0.01)

    async with replica(config(nats_server.url, model.url)), serving_calls(owner, answering) as came:
        collector = asyncio.create_task(collecting())
        chats = [Chat(bus, user) for user in users]
        try:
            for chat in chats:
                await chat.create()
            runs = [await chat.say(wanted, CALC) for chat in chats]
            ends = [await chat.ended(run, 30) for chat, run in zip(chats, runs, strict=True)]
            results = [event for chat in chats for event in await chat.events("tool_result")]
        finally:
            collector.cancel()
            await asyncio.wait([collector])
            gc.unfreeze()

    assert len(came) == 10 * each
    assert [event.get("result") for event in results] == ["sunny"] * 10 * each
    assert {ended["reason"] for ended in ends} == {"answer"}


@pytest.mark.timeout(30)
async def test_a_broker_that_is_restarted_under_a_run_does_no_harm(bus, nats_server, model):
    model.says(dripping({"text": "word "}, 0.02, 60))
    async with replica(config(nats_server.url, model.url)):
        chat = Chat(bus)
        await chat.create()
        run = await chat.say("go")
        await chat.until("delta")
        await nats_server.restart()
        await bus.wait_connected()

        async def ended():
            with contextlib.suppress(TielineError):
                return [event for event in await chat.events("run") if event.get("reason")]

        await eventually(ended, 15)
        log = await chat.log()

    assert (await chat.ended(run))["reason"] == "answer"
    assert [record.cursor.offset for record in log] == list(range(1, len(log) + 1))
    assert await chat.texts() == ["word " * 60]
