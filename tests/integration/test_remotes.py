"""The remotes service on a real NATS: two replicas, a gateway's end played by the test."""

import asyncio
import contextlib

import pytest
from tieline_protocol import bus as bus_module
from tieline_protocol import calling, leases
from tieline_protocol.bus import BusSettings
from tieline_protocol.errors import Code, Refused
from tieline_protocol.service import Common, running
from tieline_remotes.app import make
from tieline_remotes.config import Config

from tests.support.eventually import eventually
from tests.support.remote_owner import remote_owner

ECHO = {
    "name": "echo",
    "description": "Gives back what it gets",
    "parameters": {"type": "object", "properties": {"value": {}}, "required": ["value"]},
}


@pytest.fixture
async def replicas(nats_server):
    """Two replicas of the service."""
    async with contextlib.AsyncExitStack() as stack:
        for number in (1, 2):
            config = Config(BusSettings(nats_server.url, f"remotes {number}"), drain=0.2)
            await stack.enter_async_context(running(Common("remotes"), make(config)))
        yield


@pytest.fixture
async def owner(bus, replicas):
    async with remote_owner(bus) as made:
        yield made


@pytest.fixture
async def browser(owner):
    """Ada's remote `browser` with one function, on connection c1."""
    await owner.connect("ada", "browser", [ECHO])
    return owner


async def echoing(owner):
    while True:
        called = await owner.calls.get()
        await called.result(called.args["value"])


@contextlib.asynccontextmanager
async def answered(owner):
    """Every call is answered with its argument until the block is left."""
    task = asyncio.create_task(echoing(owner))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def code(caught):
    return caught.value.code


async def test_a_function_of_a_connected_remote_is_called_and_answers(bus, browser):
    async with answered(browser):
        assert await calling.call(bus, "ada", "browser", "echo", {"value": "hello"}) == "hello"


@pytest.mark.parametrize("value", [0, "", [], None, False, {}, 1.5, "ünï😀", {"a": [1, {"b": None}]}])
async def test_a_falsy_result_arrives_as_it_is(bus, browser, value):
    """B62."""
    async with answered(browser):
        result = await calling.call(bus, "ada", "browser", "echo", {"value": value})

    assert result == value
    assert type(result) is type(value)


async def test_a_remote_that_nobody_has_is_not_found_at_once(bus, replicas):
    with pytest.raises(Refused) as caught:
        await asyncio.wait_for(calling.call(bus, "ada", "nothing", "echo", {}), 2)

    assert code(caught) == Code.NOT_FOUND


async def test_somebody_elses_remote_is_not_found(bus, browser):
    with pytest.raises(Refused) as caught:
        await calling.call(bus, "eve", "browser", "echo", {"value": 1})

    assert code(caught) == Code.NOT_FOUND
    assert (await browser.ask("list", "eve", {}))["remotes"] == []


async def test_arguments_are_checked_before_they_are_sent(bus, browser):
    with pytest.raises(Refused) as caught:
        await calling.call(bus, "ada", "browser", "echo", {})

    assert code(caught) == Code.INVALID_ARGUMENTS
    assert browser.calls.empty()


async def test_an_unknown_function_is_not_found(bus, browser):
    with pytest.raises(Refused) as caught:
        await calling.call(bus, "ada", "browser", "nope", {})

    assert code(caught) == Code.NOT_FOUND


async def test_every_replica_serves_a_new_function_once_the_registration_is_answered(bus, browser):
    await asyncio.gather(
        *(call_refused(bus, "later") for _ in range(10))
    )  # both replicas remember the old one
    await browser.connect("ada", "browser", [ECHO, {**ECHO, "name": "later"}])

    async with answered(browser):
        results = await asyncio.gather(
            *(calling.call(bus, "ada", "browser", "later", {"value": number}) for number in range(20))
        )
    assert results == list(range(20))


async def call_refused(bus, function):
    with pytest.raises(Refused):
        await calling.call(bus, "ada", "browser", function, {"value": 1})


async def test_only_the_asked_connection_can_answer(bus, browser):
    """B01: knowing the id of a call is not enough to answer it."""
    call = asyncio.create_task(calling.call(bus, "ada", "browser", "echo", {"value": 1}))
    called = await browser.calls.get()

    for forged in ({"connection": "c2"}, {"gateway": "g9"}):
        with pytest.raises(Refused) as caught:
            await called.say("result", b'"PWNED"', **forged)
        assert code(caught) == Code.NOT_FOUND
    await called.result("real")

    assert await call == "real"


async def test_the_first_result_wins_and_later_ones_are_dropped(bus, browser):
    """B04."""
    call = asyncio.create_task(calling.call(bus, "ada", "browser", "echo", {"value": 1}))
    called = await browser.calls.get()
    await called.result("first")

    with pytest.raises(Refused):
        await called.result("second")
    assert await call == "first"


async def test_a_late_result_does_not_end_the_next_call(bus, browser):
    """B04."""
    with pytest.raises(Refused) as caught:
        await calling.call(bus, "ada", "browser", "echo", {"value": 1}, timeout_ms=200)
    late = await browser.calls.get()
    await eventually(late.cancelled.is_set)
    second = asyncio.create_task(calling.call(bus, "ada", "browser", "echo", {"value": 2}))
    called = await browser.calls.get()

    with pytest.raises(Refused):
        await late.result("late")
    await called.result("second")

    assert code(caught) == Code.TIMEOUT
    assert await second == "second"


async def test_an_error_of_the_function_is_told_to_the_caller(bus, browser):
    call = asyncio.create_task(calling.call(bus, "ada", "browser", "echo", {"value": 1}))
    await (await browser.calls.get()).error("no such tab")

    with pytest.raises(Refused, match="no such tab") as caught:
        await call
    assert code(caught) == Code.INTERNAL


async def test_a_caller_that_gives_up_cancels_at_the_owner(bus, browser):
    call = asyncio.create_task(calling.call(bus, "ada", "browser", "echo", {"value": 1}))
    called = await browser.calls.get()
    call.cancel()

    await asyncio.wait_for(called.cancelled.wait(), 1)


async def test_a_caller_that_gives_up_before_it_knows_the_calls_id_cancels_it_too(bus, browser):
    """However far the call has come by then: what reached the owner is cancelled there."""
    for turns in range(1, 12):
        call = asyncio.create_task(calling.call(bus, "ada", "browser", "echo", {"value": turns}))
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    last = asyncio.create_task(calling.call(bus, "ada", "browser", "echo", {"value": "last"}))
    given_up = []
    while (called := await browser.calls.get()).args["value"] != "last":
        given_up.append(called)  # what was sent before the last has arrived when that has
    await called.result("over")

    assert await last == "over"
    assert given_up
    for called in given_up:
        await asyncio.wait_for(called.cancelled.wait(), 2)


async def test_progress_reaches_the_caller(bus, browser):
    heard = []
    call = asyncio.create_task(
        calling.call(bus, "ada", "browser", "echo", {"value": 1}, on_progress=heard.append)
    )
    called = await browser.calls.get()
    await called.say("progress", b'{"message":"half","progress":1,"total":2}')
    await called.result("done")

    assert await call == "done"
    assert heard == [{"requestId": called.request_id, "message": "half", "progress": 1, "total": 2}]


async def test_a_connection_that_closes_ends_all_its_calls(bus, browser):
    """B05."""
    pending = [
        asyncio.create_task(calling.call(bus, "ada", "browser", "echo", {"value": number}))
        for number in range(5)
    ]
    called = [await browser.calls.get() for _ in pending]
    for each in called:
        with contextlib.suppress(Refused):  # a replica ends all calls of the connection at the first word
            await each.say("disconnected", b"")

    outcomes = await asyncio.wait_for(asyncio.gather(*pending, return_exceptions=True), 1)
    assert [outcome.code for outcome in outcomes] == [Code.DISCONNECTED] * 5


async def test_a_dead_sockets_late_words_do_not_remove_its_successor(bus, browser):
    """B06."""
    await browser.connect("ada", "browser", [ECHO], connection="c2")

    with pytest.raises(Refused) as caught:
        await browser.ask("disconnect", "ada", {"remotename": "browser", "connection": "c1"})

    assert code(caught) == Code.NOT_FOUND
    async with answered(browser):
        assert await calling.call(bus, "ada", "browser", "echo", {"value": "still here"}) == "still here"


async def test_a_call_on_a_registration_that_was_replaced_is_sent_to_the_new_one(bus, browser):
    async with answered(browser):
        await calling.call(bus, "ada", "browser", "echo", {"value": 1})
        browser.refuse = Refused(Code.CONFLICT, "registered anew")
        call = asyncio.create_task(calling.call(bus, "ada", "browser", "echo", {"value": 2}))
        with pytest.raises(Refused):
            await call
        browser.refuse = None
        assert await calling.call(bus, "ada", "browser", "echo", {"value": 3}) == 3


async def test_a_call_that_is_given_up_is_not_handed_over_anew(bus, browser):
    """The first hand-over comes back as meant for an older registration after nobody waits any more."""
    async with answered(browser):
        await calling.call(bus, "ada", "browser", "echo", {"value": "remembered"})
    browser.refuse = Refused(Code.CONFLICT, "registered anew")
    browser.pause.clear()
    accepted = asyncio.Event()
    call = asyncio.create_task(
        calling.call(
            bus, "ada", "browser", "echo", {"value": "given up"}, on_accepted=lambda _: accepted.set()
        )
    )
    await accepted.wait()
    await browser.refusing.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    browser.refuse = None
    last = asyncio.create_task(calling.call(bus, "ada", "browser", "echo", {"value": "last"}))
    called = await browser.calls.get()
    browser.pause.set()
    await called.result("last")

    assert (await last, called.args["value"]) == ("last", "last")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(browser.calls.get(), 0.3)


async def test_a_remote_that_disconnects_is_gone_from_the_list(bus, browser):
    assert [remote["remotename"] for remote in (await browser.ask("list", "ada", {}))["remotes"]] == [
        "browser"
    ]

    await browser.ask("disconnect", "ada", {"remotename": "browser", "connection": "c1"})

    assert (await browser.ask("list", "ada", {}))["remotes"] == []
    with pytest.raises(Refused):
        await calling.call(bus, "ada", "browser", "echo", {"value": 1})


@pytest.mark.timeout(30)
async def test_a_gateway_that_dies_ends_its_calls_and_registrations_within_ten_seconds(
    nats_server, bus, replicas
):
    async with bus_module.connect(BusSettings(nats_server.url, "dying gateway")) as other:
        lease = leases.ProcessLease(other, "gateway")
        await lease.renew()
        async with remote_owner(other) as owner:
            owner.lease = lease
            server = await other.serve(f"tieline.connection.{lease.id}.*.*", owner._received)
            await owner.connect("ada", "browser", [ECHO])
            call = asyncio.create_task(calling.call(bus, "ada", "browser", "echo", {"value": 1}))
            await owner.calls.get()

            with pytest.raises(Refused) as caught:  # nobody renews the lease any more
                await asyncio.wait_for(call, 10)

            assert code(caught) == Code.DISCONNECTED
            await eventually(lambda: nobody(owner))
            await server.close()


async def nobody(owner):
    return not (await owner.ask("list", "ada", {}))["remotes"]


async def test_ten_slow_calls_of_one_remote_run_side_by_side(bus, browser):
    """B31."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    calls = [
        asyncio.create_task(calling.call(bus, "ada", "browser", "echo", {"value": number}))
        for number in range(10)
    ]
    arrived = [await browser.calls.get() for _ in calls]
    assert loop.time() - began < 1  # all ten are at the owner before any of them has an answer
    for called in arrived:
        await called.result(called.args["value"])

    assert sorted(await asyncio.gather(*calls)) == list(range(10))


async def test_a_stuck_remote_delays_no_other(bus, browser):
    """B31."""
    await browser.connect("bob", "tool", [ECHO], connection="c7")
    stuck = asyncio.create_task(calling.call(bus, "ada", "browser", "echo", {"value": 1}))
    await browser.calls.get()

    async with answered(browser):
        assert await asyncio.wait_for(calling.call(bus, "bob", "tool", "echo", {"value": 2}), 1) == 2
    assert not stuck.done()
    stuck.cancel()


@pytest.mark.parametrize("size", [4_900_000, 5_100_000])
async def test_a_result_of_five_megabytes_works_and_a_larger_one_is_too_large(bus, browser, size):
    """B24."""
    call = asyncio.create_task(calling.call(bus, "ada", "browser", "echo", {"value": 1}))
    called = await browser.calls.get()
    await called.result("x" * size)

    if size < 5_000_000:
        assert await call == "x" * size
    else:
        with pytest.raises(Refused) as caught:
            await call
        assert code(caught) == Code.TOO_LARGE


async def test_a_bad_function_does_not_lose_the_good_ones(browser):
    """B12."""
    reply = await browser.connect("ada", "mixed", [ECHO, {"name": "bad", "parameters": []}])

    assert reply["functions"] == ["echo"]
    assert reply["refused"][0]["pointer"] == "/1/parameters"


@pytest.mark.parametrize("name", ["a.b", "a b", "*", ">", "ünï", "a\r\nPUB x 0\r\n", "$SYS", "x" * 128])
async def test_any_name_is_one_remote_and_no_subject(bus, owner, name):
    """B29."""
    if "\r" in name:
        with pytest.raises(Refused):
            await owner.connect("ada", name, [ECHO])
        return
    await owner.connect("ada", name, [ECHO])

    async with answered(owner):
        assert await calling.call(bus, "ada", name, "echo", {"value": name}) == name
    with pytest.raises(Refused):
        await calling.call(bus, "ada", name + "x", "echo", {"value": 1})


@pytest.mark.parametrize(
    ("endpoint", "payload"),
    [
        ("connect", {"remotename": "b"}),
        ("connect", {"remotename": "b", "functions": {}}),
        ("connect", {"remotename": "b", "external": {"kind": "ftp"}}),
        ("connect", {"remotename": "b", "external": 7}),
        ("connect", {"remotename": 7}),
        ("disconnect", {"remotename": []}),
        ("resolve", {"names": 5}),
        ("resolve", {"names": [None]}),
        ("resolve", {}),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused_and_says_why(owner, endpoint, payload):
    """B15: straight onto the internal subjects."""
    with pytest.raises(Refused) as caught:
        await owner.ask(endpoint, "ada", payload)

    assert code(caught) == Code.BAD_REQUEST
