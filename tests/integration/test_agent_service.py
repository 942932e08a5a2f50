"""Chat threads on a real broker: the agent service, the remotes service, a scripted model over HTTP."""

import asyncio
import contextlib
import time

import pytest
from tieline_agent.limits import Limits
from tieline_protocol import subjects
from tieline_protocol.bus import BusSettings
from tieline_protocol.errors import Code, Refused
from tieline_protocol.messages import Changed
from tieline_protocol.service import Common, running
from tieline_remotes.app import make as make_remotes
from tieline_remotes.config import Config as RemotesConfig

from tests.support.eventually import eventually
from tests.support.model import calling, dripping, model_server, saying, steps
from tests.support.remote_owner import remote_owner
from tests.support.threads import Chat, config, function, remote, replica, serving_calls

CALC = remote("calc")


@pytest.fixture
async def model():
    async with model_server() as server:
        yield server


@pytest.fixture
async def owner(bus, nats_server):
    """Ada's and Bob's remote `calc`, on a connection that the test plays."""
    remotes = RemotesConfig(BusSettings(nats_server.url, "remotes"), drain=0.2)
    async with running(Common("remotes"), make_remotes(remotes)), remote_owner(bus) as made:
        functions = [function(name) for name in ("f", "g", "fail", "stuck")]
        await made.connect("ada@example.org", "calc", functions)
        yield made


@pytest.fixture
async def chat(bus, nats_server, model):
    """A thread of Ada's, one replica."""
    async with replica(config(nats_server.url, model.url)):
        chat = Chat(bus)
        await chat.create(title="First")
        yield chat


async def answering(called):
    name = called.payload["function"]
    if name == "fail":
        await called.error("the page is gone")
    elif name == "stuck":
        await called.cancelled.wait()
    else:
        await called.result({"function": name, "args": called.args})


async def test_a_message_is_answered(chat, model):
    model.says(saying("Hello there"))
    ended = await chat.ask("hi")
    log = await chat.events()

    assert (ended["reason"], ended["usage"]["total_tokens"] > 0) == ("answer", True)
    assert [event["type"] for event in log] == [
        *("epoch", "message", "run", "run", "delta", "delta", "message", "run"),
    ]
    assert [event["state"] for event in log if event["type"] == "run"] == ["queued", "running", "ended"]
    assert await chat.texts() == ["Hellothere"]


async def test_the_log_has_no_holes_and_one_opening(chat, model):
    model.says(saying("one"), saying("two"))
    await chat.ask("hi")
    await chat.ask("again")
    log = await chat.log()

    assert [record.cursor.offset for record in log] == list(range(1, len(log) + 1))
    assert {record.cursor.epoch for record in log} == {(await chat.head())["epoch"]}


async def test_tools_of_a_remote_are_called_in_parallel_and_a_failure_is_text_for_the_model(
    chat, model, owner
):
    model.says(calling(("calc__f", {"x": 1}), ("calc__fail", {})), saying("Done"))
    async with serving_calls(owner, answering) as came:
        ended = await chat.ask("use them", CALC)
    results = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]

    assert ended["reason"] == "answer"
    assert sorted(called.payload["function"] for called in came) == ["f", "fail"]
    assert results == ['{"function":"f","args":{"x":1}}', "error: internal: the page is gone"]
    assert [event["code"] for event in await chat.events("tool_result") if "error" in event] == ["internal"]


async def test_the_trace_of_a_message_reaches_the_tool(chat, model, owner):
    chat.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    model.says(calling(("calc__f", {})), saying("Done"))
    async with serving_calls(owner, answering) as came:
        await chat.ask("use it", CALC)

    assert [called.traceparent for called in came] == [chat.traceparent]


async def test_the_thread_remembers_its_remotes(chat, model, owner):
    model.says(saying("ok"), calling(("calc__g", {})), saying("done"))
    async with serving_calls(owner, answering) as came:
        await chat.ask("here is a remote", CALC)
        await chat.ask("use it")

    assert len(came) == 1


async def test_a_tool_that_does_not_exist_is_told_to_the_model_and_the_run_goes_on(chat, model, owner):
    """B58."""
    model.says(calling(("calc__nothing", {})), saying("sorry"))
    ended = await chat.ask("go", CALC)
    (result,) = await chat.events("tool_result")

    assert ended["reason"] == "answer"
    assert (result["code"], await chat.texts()) == ("not_found", ["", "sorry"])


async def test_a_remote_that_is_not_connected_is_told(chat, model, owner):
    model.says(saying("ok"))
    await chat.ask("go", remote("elsewhere"))
    running = await chat.until("run", state="running")

    assert running["missing_remotes"] == ["elsewhere"]


async def test_the_same_message_again_gives_the_same_ids_and_one_run(chat, model):
    model.says(saying("once"))
    first = await chat.command("message", content="hi", client_message_id="c1")
    await chat.ended(first["run_id"])
    again = await chat.command("message", content="hi", client_message_id="c1")

    assert again == first
    assert len([event for event in await chat.events("message") if event["role"] == "user"]) == 1


async def test_a_request_that_is_repeated_makes_one_thread_and_one_message(chat, model):
    model.says(saying("once"))
    one, other = [await chat.rpc("create", {}, id="same") for _ in range(2)]
    first, again = [await chat.rpc("message", {**one, "content": "hi"}, id="also same") for _ in range(2)]

    assert (one, first) == (other, again)


async def test_cancel_ends_the_calls_and_the_run_at_once_and_the_next_message_is_taken(chat, model, owner):
    """B59."""
    model.says(calling(("calc__stuck", {}), ("calc__stuck", {})), saying("hello"))
    async with serving_calls(owner, answering) as came:
        run = await chat.say("go", CALC)
        await eventually(lambda: len(came) == 2)
        began = time.monotonic()
        state = await chat.command("cancel", run_id=run)
        took = time.monotonic() - began
        await asyncio.gather(*(called.cancelled.wait() for called in came))
        after = await chat.ask("hi")

    assert (state, took < 0.25) == ({"state": "ended"}, True)
    assert (await chat.ended(run))["reason"] == "cancelled"
    assert {event["code"] for event in await chat.events("tool_result")} == {"cancelled"}
    assert after["reason"] == "answer"


async def test_cancel_while_the_model_speaks_keeps_what_it_said(chat, model):
    """B59."""
    model.says(dripping({"text": "word "}, 0.05, 100), saying("hello"))
    run = await chat.say("go")
    await chat.until("delta")
    await chat.command("cancel")
    interrupted = await chat.until("message", interrupted=True)

    assert (await chat.ended(run))["reason"] == "cancelled"
    assert interrupted["content"].startswith("word ")
    assert (await chat.ask("hi"))["reason"] == "answer"


async def test_cancel_ends_messages_that_wait_too(chat, model):
    model.says(dripping({"text": "word "}, 0.05, 100))
    runs = [await chat.say(text) for text in ("one", "two", "three")]
    await chat.until("delta")
    await chat.command("cancel")

    assert [(await chat.ended(run))["reason"] for run in runs] == ["cancelled"] * 3


async def test_messages_that_come_while_a_run_goes_on_are_answered_after_it_in_order(chat, model):
    model.says(dripping({"text": "slow "}, 0.05, 4), saying("second"), saying("third"))
    runs = [await chat.say(text) for text in ("one", "two", "three")]
    for run in runs:
        await chat.ended(run)

    assert await chat.texts() == ["slow slow slow slow ", "second", "third"]


async def test_a_limit_ends_the_run_and_says_which(bus, nats_server, model, owner):
    model.says(*[calling(("calc__f", {}))] * 2)
    settings = config(nats_server.url, model.url, limits=Limits(steps=2))
    async with replica(settings), serving_calls(owner, answering):
        chat = Chat(bus)
        await chat.create()
        ended = await chat.ask("go on for ever", CALC)

    assert ended["reason"] == "limit_steps"


async def test_the_model_and_the_instructions_of_a_thread_are_used(chat, model):
    model.says(saying("ok"))
    await chat.create(model="big", instructions="Be brief.")
    await chat.ask("hi")

    assert model.requests[-1]["model"] == "big"
    assert model.requests[-1]["messages"][0] == {"role": "system", "content": "Be brief."}


async def test_a_model_that_refuses_ends_the_run_with_an_error(chat, model):
    model.says({"status": 401, "error": {"message": "bad key sk-123", "code": "invalid_api_key"}})
    ended = await chat.ask("hi")

    assert (ended["reason"], ended["error"]["code"]) == ("error", "unauthorized")
    assert "sk-123" not in ended["error"]["message"]


async def test_threads_are_listed_renamed_and_deleted(chat, model):
    model.says(saying("ok"))
    await chat.ask("hi")
    await chat.rpc("rename", {"thread_id": chat.thread, "title": "Second"})
    (listed,) = (await chat.rpc("list"))["threads"]
    got = await chat.rpc("get", {"thread_id": chat.thread})
    await chat.rpc("delete", {"thread_id": chat.thread})
    with pytest.raises(Refused) as caught:
        await chat.rpc("get", {"thread_id": chat.thread})

    assert (listed["title"], got["title"]) == ("Second", "Second")
    assert caught.value.code is Code.NOT_FOUND
    assert await chat.events() == []
    assert (await chat.rpc("list"))["threads"] == []


async def test_changes_of_the_list_are_told(chat, bus, model):
    model.says(saying("ok"))
    async with bus.following(subjects.changed(chat.user)) as changes:
        await chat.create()
        await chat.ask("hi")
        await chat.rpc("rename", {"thread_id": chat.thread, "title": "Second"})
        await chat.rpc("delete", {"thread_id": chat.thread})
        told = []
        async for batch in changes:
            told += [Changed.decode(received.data) for received in batch]
            if told[-1].change == "removed":
                break

    assert {(one.what, one.id) for one in told} == {("thread", chat.thread)}
    assert [one.change for one in told] == ["added", "updated", "updated", "removed"]


async def test_a_message_that_waits_is_not_lost_when_too_many_do(chat, model):
    model.says(dripping({"text": "word "}, 0.05, 200))
    runs = [await chat.say("hi") for _ in range(64)]
    with pytest.raises(Refused) as caught:
        await chat.say("one too many")
    await chat.command("cancel")

    assert caught.value.code is Code.BUSY
    assert {(await chat.ended(run))["reason"] for run in (runs[0], runs[-1])} == {"cancelled"}


async def test_a_long_answer_reaches_the_log_whole(chat, model):
    pieces = [f"piece {number} \n" for number in range(3_000)]
    model.says(steps(*({"text": piece} for piece in pieces)))
    await chat.ask("go on")
    deltas = "".join(event["text"] for event in await chat.events("delta"))

    assert deltas == "".join(pieces)
    assert await chat.texts() == [deltas]


async def test_deleting_a_thread_ends_what_goes_on_in_it(chat, model):
    model.says(steps({"text": "and"}, {"stall": True}))
    await chat.say("hi")
    await chat.until("delta")
    await chat.command("delete")
    with pytest.raises(Refused) as caught:
        await chat.say("still there?")

    assert caught.value.code is Code.NOT_FOUND


@pytest.mark.parametrize("endpoint", ["get", "rename", "delete", "message", "cancel"])
async def test_somebody_elses_thread_is_not_found(chat, bus, endpoint):
    other = Chat(bus, "bob")
    with pytest.raises(Refused) as caught:
        await other.rpc(endpoint, {"thread_id": chat.thread, "content": "hi", "title": "mine"})

    assert caught.value.code is Code.NOT_FOUND


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"content": 5},
        {"content": "hi", "resources": [{"content": "no kind"}]},
        {"content": "hi", "resources": "none"},
        {"content": "hi", "client_message_id": ""},
    ],
)
async def test_a_message_that_is_none_is_refused(chat, payload):
    with pytest.raises(Refused) as caught:
        await chat.command("message", **payload)

    assert caught.value.code is Code.BAD_REQUEST


async def test_a_message_that_is_too_large_is_refused(chat):
    with pytest.raises(Refused) as caught:
        await chat.say("x" * 1_100_000)

    assert caught.value.code is Code.TOO_LARGE


async def test_one_users_slow_model_delays_nobody(chat, bus, model):
    """B31."""
    model.says(steps({"wait": 6}, {"text": "late"}), saying("quick"))
    slow = await chat.say("hi")
    await eventually(lambda: model.requests)
    other = Chat(bus, "bob")
    await other.create()
    began = time.monotonic()
    await other.ask("hi")
    took = time.monotonic() - began
    await chat.command("cancel", run_id=slow)

    assert took < 1


async def test_a_quiet_thread_is_given_up_and_taken_again(bus, nats_server, model):
    model.says(saying("one"), saying("two"))
    async with replica(config(nats_server.url, model.url, idle=0.05)):
        chat = Chat(bus)
        await chat.create()
        await chat.ask("hi")

        async def unowned():
            with contextlib.suppress(Refused):
                return not await chat.head()

        with pytest.raises(Exception, match="nobody"):
            await eventually(unowned)
        await chat.ask("again")
    openings = await chat.events("epoch")

    assert len(openings) == 2
    assert openings[1]["clean"] is True
    assert len(model.requests[-1]["messages"]) == 3
