"""The client when its connection is lost, against a real WebSocket server that does what each test says."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tieline import Call, Client, Disconnected, Remote, TielineError
from websockets.asyncio.server import Server, ServerConnection, serve

from tests.support.eventually import eventually


class Gateway:
    """A gateway that keeps what it is asked, answers the usual, and can lose its connections."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.sockets: list[ServerConnection] = []
        self.answers: dict[str, Any] = {}
        self.silent: set[str] = set()
        self.at_once: dict[str, list[tuple[str, str]]] = {}  # events (cursor, type) right behind an answer
        self.heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.url = ""

    async def handle(self, socket: ServerConnection) -> None:
        self.sockets.append(socket)
        async for text in socket:
            frame = json.loads(text)
            if frame.get("type") == "notification":
                self.heard.put_nowait(frame)
                continue
            self.asked.append(frame)
            if frame["action"] in self.silent:
                continue
            payload = self.answers.get(frame["action"], {})
            kind = "error" if "code" in payload else "response"
            answer = {"type": kind, "id": frame["id"], "action": frame["action"], "payload": payload}
            await socket.send(json.dumps(answer))
            for event in self.at_once.get(frame["action"], ()):
                await self.event(*event)

    def requests(self, action: str) -> list[dict[str, Any]]:
        return [frame["payload"] for frame in self.asked if frame["action"] == action]

    async def say(self, action: str, payload: dict[str, Any], **more: Any) -> None:
        frame = {"type": "notification", "action": action, "payload": payload, **more}
        await self.sockets[-1].send(json.dumps(frame))

    async def event(self, cursor: str, type: str) -> None:
        about = {"session_id": "s1", "log": "agent", "cursor": cursor, "time": 1, "event": {"type": type}}
        await self.say("session.event", about)

    def lose(self) -> None:
        self.sockets[-1].transport.abort()


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Gateway, Server]]:
    gateway = Gateway()
    async with serve(gateway.handle, "127.0.0.1", 0) as server:
        gateway.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
        yield gateway, server


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with serving() as (made, _):
        yield made


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[Client]:
    async with Client(gateway.url, "token") as made:
        yield made


async def test_a_watch_goes_on_where_it_was(gateway: Gateway, client: Client) -> None:
    gateway.answers["session.subscribe"] = {"logs": {"agent": {"cursor": "c0", "reset": False}}}
    events = await client.subscribe("s1", ["agent"], {"agent": "start"})
    await gateway.event("c1", type="message_chunk")
    assert (await anext(events)).cursor == "c1"

    gateway.lose()
    await eventually(lambda: len(gateway.requests("session.subscribe")) == 2)
    await gateway.event("c2", type="message_chunk")

    assert (await anext(events)).cursor == "c2"
    assert [asked["cursors"] for asked in gateway.requests("session.subscribe")] == [
        {"agent": "start"},
        {"agent": "c1"},
    ]


async def test_events_right_behind_the_answer_are_not_asked_for_again(
    gateway: Gateway, client: Client
) -> None:
    """The answer says where the watch began; the next connection goes on where it is."""
    gateway.answers["session.subscribe"] = {"logs": {"agent": {"cursor": "c0", "reset": False}}}
    gateway.at_once["session.subscribe"] = [("c1", "message_chunk"), ("c2", "message_chunk")]
    events = await client.subscribe("s1", ["agent"], {"agent": "start"})
    assert [(await anext(events)).cursor for _ in range(2)] == ["c1", "c2"]

    gateway.answers["session.subscribe"] = {"logs": {"agent": {"cursor": "c2", "reset": False}}}
    gateway.at_once["session.subscribe"] = [("c3", "message_chunk")]
    for count in (2, 3):
        gateway.lose()
        await eventually(lambda count=count: len(gateway.requests("session.subscribe")) == count)
        assert (await anext(events)).cursor == "c3"

    asked = [asked["cursors"]["agent"] for asked in gateway.requests("session.subscribe")]
    assert asked == ["start", "c2", "c3"]


async def test_a_watch_whose_place_is_gone_is_told_to_begin_anew(gateway: Gateway, client: Client) -> None:
    gateway.answers["session.subscribe"] = {"logs": {"agent": {"cursor": "c0", "reset": False}}}
    events = await client.subscribe("s1", ["agent"])
    gateway.answers["session.subscribe"] = {"logs": {"agent": {"cursor": "c90", "reset": True}}}

    gateway.lose()

    assert (await anext(events)).type == "reset"


@pytest.mark.parametrize("code", ["unavailable", "timeout"])
async def test_a_watch_and_a_remote_wait_for_what_is_away_behind_the_gateway(
    gateway: Gateway, client: Client, code: str
) -> None:
    """The gateway is back before its broker is."""
    gateway.answers["session.subscribe"] = {"logs": {"agent": {"cursor": "c0", "reset": False}}}
    events = await client.subscribe("s1", ["agent"])
    remote = Remote("calc")
    async with client.serve(remote):
        away = {"code": code, "message": "the broker is away"}
        gateway.answers |= {"session.subscribe": away, "remote-connect": away}
        gateway.lose()
        await eventually(lambda: len(gateway.requests("remote-connect")) >= 3)
        gateway.answers["remote-connect"] = {}
        await eventually(lambda: len(gateway.requests("session.subscribe")) >= 3)
        gateway.answers["session.subscribe"] = {"logs": {"agent": {"cursor": "c0", "reset": False}}}
        await client.request("session.list")
        await gateway.event("c1", type="message_chunk")

        assert (await anext(events)).cursor == "c1"


async def test_a_request_under_way_is_not_repeated_and_the_next_one_waits_for_the_connection(
    gateway: Gateway, client: Client
) -> None:
    gateway.silent.add("agent.prompt")
    prompt = asyncio.create_task(client.request("agent.prompt", {"text": "once"}))
    await eventually(lambda: gateway.requests("agent.prompt"))

    gateway.lose()

    with pytest.raises(Disconnected):
        await prompt
    gateway.answers["session.list"] = {"sessions": []}
    assert await client.request("session.list") == {"sessions": []}
    assert len(gateway.requests("agent.prompt")) == 1


async def test_a_client_that_is_told_not_to_come_back_does_not(gateway: Gateway, client: Client) -> None:
    events = await client.subscribe("s1", ["agent"])

    await gateway.sockets[-1].close(4500, "token expired")

    with pytest.raises(Disconnected):
        await anext(events)
    with pytest.raises(Disconnected):
        await client.request("session.list")
    assert len(gateway.sockets) == 1


async def test_a_gateway_that_is_away_for_a_while_is_asked_again_and_again() -> None:
    async with serving() as (gateway, server):
        port = server.sockets[0].getsockname()[1]
        async with Client(gateway.url, "token") as client:
            server.close()
            await server.wait_closed()
            waiting = asyncio.create_task(client.request("session.list"))
            async with serve(gateway.handle, "127.0.0.1", port):
                assert await waiting == {}


def weather() -> Remote:
    """A remote with one function of each kind."""
    remote = Remote("weather")

    @remote.function
    def forecast(city: str, days: int = 1) -> dict[str, Any]:
        """The weather to come.  city: where"""
        return {"city": city, "days": days}

    @remote.function
    async def watch(call: Call) -> str:
        await call.progress("looking", 1, 2)
        await asyncio.Event().wait()
        return "never"

    @remote.function
    async def fail() -> None:
        raise ValueError("no sky today")

    @remote.function
    async def infinite() -> float:
        return float("inf")

    @remote.function
    def slow(call: Call) -> bool:
        call.progress_from_thread("in a thread")
        return call.cancelled

    return remote


def called(function: str, args: Any = None, request: str = "r-1") -> dict[str, Any]:
    about = {"remotename": "weather", "function": function, "args": args or {}}
    return {"requestId": request, "deadline_ms": 30_000, **about}


async def test_a_remote_is_registered_from_hints_and_docstring(gateway: Gateway, client: Client) -> None:
    gateway.answers["remote-connect"] = {"remotename": "weather", "functions": ["forecast"], "refused": []}
    async with client.serve(weather()) as served:
        assert served.functions == ["forecast"]
        [registered] = gateway.requests("remote-connect")
        assert registered["functions"][0]["parameters"]["required"] == ["city"]
        with pytest.raises(TielineError, match="already"):
            async with client.serve(weather()):
                pass

    assert gateway.requests("remote-disconnect") == [{"remotename": "weather"}]


@pytest.mark.parametrize(
    ("function", "args", "told"),
    [
        ("forecast", {"city": "Paris"}, {"result": {"city": "Paris", "days": 1}}),
        ("fail", {}, {"error": "ValueError: no sky today", "code": "internal"}),
        ("nope", {}, {"error": "the remote 'weather' has no function 'nope'", "code": "not_found"}),
    ],
)
async def test_a_call_is_answered_with_what_the_function_did(
    gateway: Gateway, client: Client, function: str, args: Any, told: dict[str, Any]
) -> None:
    async with client.serve(weather()):
        await gateway.say("remote-call", called(function, args))
        frame = await gateway.heard.get()

    assert frame["action"] == "remote-call-result"
    assert frame["payload"] == {"requestId": "r-1", **told}


@pytest.mark.parametrize(
    ("function", "args", "code"),
    [("forecast", {"city": 7}, "invalid_arguments"), ("infinite", {}, "internal")],
)
async def test_what_cannot_be_called_or_told_is_an_error_of_that_call_alone(
    gateway: Gateway, client: Client, function: str, args: Any, code: str
) -> None:
    """B21: no NaN or Infinity leaves us."""
    async with client.serve(weather()):
        await gateway.say("remote-call", called(function, args))
        assert (await gateway.heard.get())["payload"]["code"] == code


async def test_what_a_function_asks_for_belongs_to_the_trace_of_its_call(
    gateway: Gateway, client: Client
) -> None:
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    remote = Remote("weather")

    @remote.function
    async def look() -> None:
        await client.request("session.list")

    async with client.serve(remote):
        await gateway.say("remote-call", called("look"), metadata=trace)
        await gateway.heard.get()

    told = {frame["action"]: frame.get("metadata") for frame in gateway.asked}
    assert told["session.list"] == trace
    assert told["auth"] is told["remote-connect"] is told["remote-disconnect"] is None


async def test_progress_and_cancellation_reach_the_function(gateway: Gateway, client: Client) -> None:
    async with client.serve(weather()):
        await gateway.say("remote-call", called("watch"))
        progress = await gateway.heard.get()
        await gateway.say("remote-call-cancel", {"requestId": "r-1"})
        await eventually(lambda: not client._serving.calls._tasks)
        await gateway.say("remote-call", called("slow", request="r-2"))
        threaded = await gateway.heard.get()
        result = await gateway.heard.get()

    assert progress["payload"] == {"requestId": "r-1", "message": "looking", "progress": 1, "total": 2}
    assert threaded["payload"] == {"requestId": "r-2", "message": "in a thread"}
    assert result["payload"] == {"requestId": "r-2", "result": False}


async def test_a_remote_is_registered_again_after_a_loss_unless_somebody_took_it_over(
    gateway: Gateway, client: Client
) -> None:
    async with client.serve(weather()) as served:
        gateway.lose()
        await eventually(lambda: len(gateway.requests("remote-connect")) == 2)
        await client.request("session.list")
        await gateway.say("remote-replaced", {"remotename": "weather"})
        await served.replaced.wait()
        gateway.lose()
        await eventually(lambda: len(gateway.sockets) == 3)
        await client.request("session.list")

    assert len(gateway.requests("remote-connect")) == 2
    assert gateway.requests("remote-disconnect") == []


async def test_a_call_of_ones_own_hears_progress_and_its_end(gateway: Gateway, client: Client) -> None:
    gateway.answers["remote-call"] = {"requestId": "r-9"}
    heard: list[dict[str, Any]] = []
    call = asyncio.create_task(
        client.call("weather", "forecast", {"city": "Paris"}, on_progress=heard.append)
    )
    await eventually(lambda: len(client._made))
    await gateway.say("remote-call-progress", {"requestId": "r-9", "message": "half"})
    await gateway.say("remote-call-result", {"requestId": "r-9", "result": None})

    assert await call is None
    assert heard == [{"requestId": "r-9", "message": "half"}]


async def test_an_end_that_comes_right_behind_the_id_is_not_missed(gateway: Gateway, client: Client) -> None:
    gateway.answers["remote-call"] = {"requestId": "r-9"}
    call = asyncio.create_task(client.call("weather", "forecast"))
    await eventually(lambda: gateway.requests("remote-call"))
    await gateway.say("remote-call-result", {"requestId": "r-9", "error": "gone", "code": "disconnected"})

    with pytest.raises(TielineError, match="gone") as caught:
        await call
    assert caught.value.code == "disconnected"


async def test_a_call_that_is_given_up_is_cancelled(gateway: Gateway, client: Client) -> None:
    gateway.answers["remote-call"] = {"requestId": "r-9"}
    call = asyncio.create_task(client.call("weather", "forecast"))
    await eventually(lambda: len(client._made))
    call.cancel()

    assert (await gateway.heard.get())["payload"] == {"requestId": "r-9"}


async def test_a_call_ends_when_its_client_is_closed(gateway: Gateway, client: Client) -> None:
    gateway.answers["remote-call"] = {"requestId": "r-9"}
    call = asyncio.create_task(client.call("weather", "forecast"))
    await eventually(lambda: len(client._made))
    await client.close()

    with pytest.raises(Disconnected):
        await call


async def test_a_request_that_waits_for_a_connection_ends_when_the_client_is_closed(
    gateway: Gateway, client: Client
) -> None:
    gateway.lose()
    await eventually(lambda: not client._up.is_set())
    requests = [
        asyncio.create_task(work)
        for work in (client.request("session.list"), client.call("weather", "forecast"))
    ]
    await asyncio.sleep(0)
    await client.close()
    ends = await asyncio.gather(*requests, return_exceptions=True)

    assert [type(end) for end in ends] == [Disconnected, Disconnected]


async def test_a_thread_is_followed_like_a_session(gateway: Gateway, client: Client) -> None:
    gateway.answers["thread.subscribe"] = {"cursor": "t0", "reset": False}
    async with await client.subscribe_thread("t1") as events:
        about = {"thread_id": "t1", "cursor": "t1", "time": 1, "event": {"type": "delta", "text": "hi"}}
        await gateway.say("thread.event", about)
        assert (await anext(events)).body["text"] == "hi"
        gateway.lose()
        await eventually(lambda: len(gateway.requests("thread.subscribe")) == 2)

    assert gateway.requests("thread.subscribe")[1] == {"thread_id": "t1", "cursor": "t1"}
