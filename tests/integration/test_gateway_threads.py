"""Chat threads through the gateway: who answers what, and following a thread's log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tieline import Client, Remote
from tieline_protocol import bus as buses
from tieline_protocol import jetstream, subjects
from tieline_protocol.bus import Bus, BusSettings, Received
from tieline_protocol.errors import Code, Refused, TielineError
from tieline_protocol.messages import Changed, Request, answer, refusal

from tests.support.eventually import eventually
from tests.support.gateway import Raw, frontend, gateway, token
from tests.support.model import calling, model_server, saying
from tests.support.nats_server import NatsServer
from tests.support.owner import OwnedLog
from tests.support.raw_remote import remotes, told
from tests.support.threads import config, remote, replica

Handler = Callable[[Request], Awaitable[dict[str, Any] | TielineError]]


class Thread:
    """A thread and its owner in a few lines: the real log, commands answered as a test says."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.log = OwnedLog(bus, "ada", "t1", "thread")
        self.asked: list[tuple[str, Request]] = []
        self._server: buses.Server | None = None

    async def record(self) -> None:
        bucket = jetstream.Bucket(self.bus, subjects.BUCKET_THREADS)
        await bucket.put(subjects.thread_key("ada", "t1"), b"{}")

    async def own(self) -> None:
        """Take the thread, and answer its commands."""
        epoch = await jetstream.Bucket(self.bus, subjects.BUCKET_OWNERS).put("t1", b'{"holder":"test"}')
        await self.log.open(epoch, self.log.epoch, self.log.last)
        self._server = await self.bus.serve(subjects.commands("ada", "t1"), self._handle)
        await self.bus.flush()

    async def leave(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.close()
            await self.bus.flush()

    async def _handle(self, received: Received) -> bytes:
        action = subjects.command_action(received.subject)
        if action == subjects.HEAD:
            return answer({"thread": self.log.head()})
        request = Request.decode(received.data)
        self.asked.append((action, request))
        return answer({"did": action})

    async def say(self, *numbers: int) -> None:
        for number in numbers:
            await self.log.emit({"type": "delta", "n": number})


@pytest.fixture
async def thread(bus: Bus) -> AsyncIterator[Thread]:
    """Ada's thread t1; nobody owns it yet."""
    made = Thread(bus)
    await made.record()
    yield made
    await made.leave()


@pytest.fixture
async def url(nats_server: NatsServer, bus: Bus) -> AsyncIterator[str]:
    async with gateway(nats_server.url) as url:
        yield url


@contextlib.asynccontextmanager
async def service(nats_url: str, **handlers: Handler) -> AsyncIterator[list[tuple[str, Request]]]:
    """Endpoints of the agent service; yields what they were asked."""
    asked: list[tuple[str, Request]] = []

    async def handle(received: Received) -> bytes:
        endpoint = received.subject.split(".")[3]
        request = Request.decode(received.data)
        asked.append((endpoint, request))
        reply = await handlers[endpoint](request)
        return refusal(reply) if isinstance(reply, TielineError) else answer(reply)

    async with (
        buses.connect(BusSettings(nats_url, "fake agent")) as bus,
        contextlib.AsyncExitStack() as stack,
    ):
        for endpoint in handlers:
            server = await bus.serve(subjects.rpc_endpoint("agent", endpoint), handle, queue="agent")
            stack.push_async_callback(server.close)
        await bus.flush()
        yield asked


async def echo(request: Request) -> dict[str, Any]:
    return {"got": request.payload, "user": request.user}


def events(front: Raw) -> list[dict[str, Any]]:
    return told(front, "thread.event")


def numbers(front: Raw) -> list[int]:
    return [one["event"]["n"] for one in events(front) if "n" in one["event"]]


# Who answers


@pytest.mark.parametrize(
    ("endpoint", "payload"),
    [
        ("create", {"title": "x", "model": "m", "instructions": "be brief"}),
        ("list", {"after": "t0", "limit": 5}),
        ("get", {"thread_id": "t1"}),
        ("rename", {"thread_id": "t1", "title": "y"}),
        ("delete", {"thread_id": "t1"}),
    ],
)
async def test_any_replica_of_the_agent_service_answers_for_threads(
    nats_server: NatsServer, url: str, endpoint: str, payload: dict[str, Any]
) -> None:
    async with service(nats_server.url, **{endpoint: echo}), frontend(url) as front:
        told = await front.ask(f"thread.{endpoint}", {**payload, "unknown": 1})

    assert told["payload"] == {"got": payload, "user": "ada"}


@pytest.mark.parametrize(
    ("action", "payload"),
    [
        (
            "message",
            {"thread_id": "t1", "content": "hello", "client_message_id": "m1", "resources": [remote("b")]},
        ),
        ("cancel", {"thread_id": "t1", "run_id": "r1"}),
    ],
)
async def test_the_owner_is_asked_and_where_there_is_none_any_replica(
    nats_server: NatsServer, url: str, thread: Thread, action: str, payload: dict[str, Any]
) -> None:
    async with service(nats_server.url, **{action: echo}) as asked, frontend(url) as front:
        unowned = await front.ask(f"thread.{action}", payload)
        await thread.own()
        owned = await front.ask(f"thread.{action}", payload)

    assert unowned["payload"] == {"got": payload, "user": "ada"}
    assert owned["payload"] == {"did": f"thread.{action}"}
    assert [request.payload for _, request in thread.asked] == [payload]
    assert len(asked) == 1


async def test_a_message_without_an_id_gets_one_so_that_it_may_be_sent_again(
    nats_server: NatsServer, url: str
) -> None:
    async with service(nats_server.url, message=echo), frontend(url) as front:
        told = await front.ask("thread.message", {"thread_id": "t1", "content": "hello"}, timeout=20)

    assert len(told["payload"]["got"]["client_message_id"]) >= 16


async def test_a_message_waits_for_a_replica_that_is_about_to_come(nats_server: NatsServer, url: str) -> None:
    async with frontend(url) as front:
        pending = asyncio.create_task(front.ask("thread.message", {"thread_id": "t1", "content": "hello"}))
        await front.until(lambda: True)
        async with service(nats_server.url, message=echo):
            told = await pending

    assert told["type"] == "response"


@pytest.mark.timeout(30)
async def test_a_message_that_a_replica_took_along_when_it_died_is_given_to_another(
    nats_server: NatsServer, url: str
) -> None:
    async def die(request: Request) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async with frontend(url) as front:
        async with service(nats_server.url, message=die) as taken:
            pending = asyncio.create_task(
                front.ask("thread.message", {"thread_id": "t1", "content": "hello"}, timeout=20)
            )
            await eventually(lambda: taken)
        async with service(nats_server.url, message=echo) as asked:
            told = await pending

    assert told["payload"]["got"]["content"] == "hello"
    assert [request.id for _, request in asked] == [request.id for _, request in taken]


async def test_a_refusal_comes_as_it_is(nats_server: NatsServer, url: str) -> None:
    async def no(request: Request) -> TielineError:
        return Refused(Code.NOT_FOUND, "there is no such thread")

    async with service(nats_server.url, message=no, get=no), frontend(url) as front:
        told = [
            await front.ask("thread.message", {"thread_id": "t9", "content": "x"}),
            await front.ask("thread.get", {"thread_id": "t9"}),
        ]

    assert [one["payload"] for one in told] == [
        {"code": "not_found", "message": "there is no such thread"}
    ] * 2


@pytest.mark.parametrize(
    ("action", "payload", "named"),
    [
        ("thread.message", {"thread_id": "t1"}, "content"),
        ("thread.message", {"thread_id": "a.b", "content": "x"}, "thread_id"),
        ("thread.message", {"thread_id": "t1", "content": "x", "resources": [{"content": "b"}]}, "kind"),
        ("thread.subscribe", {"thread_id": "t1", "cursor": "x"}, "cursor"),
        ("thread.subscribe", {}, "thread_id"),
        ("thread.rename", {"thread_id": "t1"}, "title"),
        ("thread.list", {"limit": 0}, "limit"),
    ],
)
async def test_a_mistake_is_named(url: str, action: str, payload: dict[str, Any], named: str) -> None:
    """B15"""
    async with frontend(url) as front:
        told = await front.ask(action, payload)

    assert told["payload"]["code"] == "bad_request"
    assert named in told["payload"]["message"]


async def test_a_change_of_the_list_is_told_to_every_connection_of_the_user(url: str, bus: Bus) -> None:
    async with frontend(url) as one, frontend(url) as two, frontend(url, "eve") as eve:
        change = Changed(what="thread", id="t1", change="added")
        await bus.publish(subjects.changed("ada"), change.encode())
        heard = [await front.until(lambda front=front: told(front, "changed")) for front in (one, two)]

        assert heard == [[change.model_dump()]] * 2
        assert told(eve, "changed") == []


# Following


async def test_a_thread_is_followed_from_its_beginning(url: str, thread: Thread) -> None:
    await thread.own()
    await thread.say(1, 2)
    async with frontend(url) as front:
        joined = await front.ask("thread.subscribe", {"thread_id": "t1"})
        await front.until(lambda: numbers(front) == [1, 2])
        await thread.say(3)
        await front.until(lambda: numbers(front) == [1, 2, 3])

    assert joined["payload"] == {"cursor": "0.0.0", "reset": False}
    assert [one["event"]["type"] for one in events(front)] == ["epoch", "delta", "delta", "delta"]
    assert {one["thread_id"] for one in events(front)} == {"t1"}
    assert set(events(front)[0]) == {"thread_id", "cursor", "time", "event"}


async def test_a_cursor_goes_on_where_it_was(url: str, thread: Thread) -> None:
    await thread.own()
    await thread.say(1, 2, 3)
    async with frontend(url) as front:
        await front.ask("thread.subscribe", {"thread_id": "t1"})
        await front.until(lambda: numbers(front) == [1, 2, 3])
        cursor = next(one["cursor"] for one in events(front) if one["event"].get("n") == 2)
    async with frontend(url) as back:
        joined = await back.ask("thread.subscribe", {"thread_id": "t1", "cursor": cursor})
        await back.until(lambda: numbers(back) == [3])

    assert joined["payload"] == {"cursor": cursor, "reset": False}


async def test_a_thread_that_nobody_owns_is_read_and_heard_once_it_wakes(url: str, thread: Thread) -> None:
    await thread.own()
    await thread.say(1, 2)
    await thread.leave()
    async with frontend(url) as front:
        await front.ask("thread.subscribe", {"thread_id": "t1"})
        await front.until(lambda: numbers(front) == [1, 2])
        await thread.own()
        await thread.say(3)
        await front.until(lambda: numbers(front) == [1, 2, 3])

    assert [one["event"]["type"] for one in events(front)].count("epoch") == 2


async def test_a_thread_without_a_single_event_is_followed(url: str, thread: Thread) -> None:
    async with frontend(url) as front:
        joined = await front.ask("thread.subscribe", {"thread_id": "t1"})
        await thread.own()
        await thread.say(1)
        await front.until(lambda: numbers(front) == [1])

    assert joined["payload"]["reset"] is False


@pytest.mark.parametrize("cursor", ["5.3.1", "9999999999999999.1.1"])
async def test_a_cursor_that_is_no_place_in_the_log_begins_from_the_start(
    url: str, thread: Thread, cursor: str
) -> None:
    await thread.own()
    await thread.say(1, 2)
    async with frontend(url) as front:
        joined = await front.ask("thread.subscribe", {"thread_id": "t1", "cursor": cursor})
        await front.until(lambda: numbers(front) == [1, 2])

    assert joined["payload"] == {"cursor": "0.0.0", "reset": True}


@pytest.mark.parametrize(("cursor", "heard"), [("start", [1, 2, 3]), ("snapshot", [1, 2, 3]), ("now", [3])])
async def test_words_say_where_to_begin(url: str, thread: Thread, cursor: str, heard: list[int]) -> None:
    await thread.own()
    await thread.say(1, 2)
    async with frontend(url) as front:
        joined = await front.ask("thread.subscribe", {"thread_id": "t1", "cursor": cursor})
        await thread.say(3)
        await front.until(lambda: numbers(front) == heard)

    assert joined["payload"]["reset"] is False


async def test_subscribing_twice_changes_nothing_and_leaving_ends_it(url: str, thread: Thread) -> None:
    await thread.own()
    async with frontend(url) as front, frontend(url) as other:
        for _ in range(2):
            assert (await front.ask("thread.subscribe", {"thread_id": "t1"}))["type"] == "response"
        await other.ask("thread.subscribe", {"thread_id": "t1"})
        await thread.say(1)
        await front.until(lambda: numbers(front) == [1])
        assert (await front.ask("thread.unsubscribe", {"thread_id": "t1"}))["payload"] == {}
        await thread.say(2)
        await other.until(lambda: numbers(other) == [1, 2])
        await front.ask("thread.unsubscribe", {"thread_id": "t1"})

    assert numbers(front) == [1]


@pytest.mark.parametrize(("user", "id"), [("eve", "t1"), ("ada", "t2"), ("ada", "s1")])
async def test_what_is_not_ones_own_is_not_found(url: str, thread: Thread, user: str, id: str) -> None:
    """B29"""
    await thread.own()
    async with frontend(url, user) as front:
        told = await front.ask("thread.subscribe", {"thread_id": id})

    assert told["payload"] == {"code": "not_found", "message": "no such thread"}


# All of it


@pytest.mark.timeout(30)
async def test_a_chat_calls_a_function_of_a_browser_and_answers_from_it(
    nats_server: NatsServer, bus: Bus, url: str
) -> None:
    """The whole of the document on remotes, by the client that users install."""
    browser = Remote("browser")

    @browser.function
    async def title(tab: int) -> str:
        "The title of a tab."
        return f"Tab {tab}: Tieline"

    async with (
        remotes(nats_server.url),
        model_server(calling(("browser__title", {"tab": 3})), saying("It is Tieline.")) as model,
        replica(config(nats_server.url, model.url)),
        Client(url, token()) as client,
        client.serve(browser),
    ):
        thread_id = (await client.request("thread.create", {"title": "Tabs"}))["thread_id"]
        seen: list[dict[str, Any]] = []
        async with await client.subscribe_thread(thread_id) as following:
            said = await client.request(
                "thread.message",
                {"thread_id": thread_id, "content": "What is in tab 3?", "resources": [remote("browser")]},
            )
            async for event in following:
                seen.append(event.body)
                if event.type == "run" and event.body["state"] == "ended":
                    break
        listed = await client.request("thread.list", {})
        got = await client.request("thread.get", {"thread_id": thread_id})
        await client.request("thread.delete", {"thread_id": thread_id})

    by_type = {one["type"]: one for one in seen}
    assert by_type["run"]["run_id"] == said["run_id"]
    assert by_type["run"]["reason"] == "answer"
    assert by_type["tool_call"]["function"] == "title"
    assert by_type["tool_result"]["result"] == "Tab 3: Tieline"
    assert by_type["message"]["content"].replace(" ", "") == "ItisTieline."
    assert [one["thread_id"] for one in listed["threads"]] == [thread_id]
    assert got["title"] == "Tabs"
