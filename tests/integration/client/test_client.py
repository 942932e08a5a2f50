"""The client against a real WebSocket server that does what each test says."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tieline import Client, Disconnected, TielineError, TooSlow, subscription
from websockets.asyncio.server import ServerConnection, serve

from tests.support.eventually import eventually

Script = Callable[[ServerConnection, dict[str, Any]], Awaitable[None]]


def reply(request: dict[str, Any], payload: dict[str, Any], type: str = "response") -> str:
    return json.dumps({"type": type, "id": request["id"], "action": request["action"], "payload": payload})


def event(offset: int, log: str = "agent", **body: Any) -> str:
    payload = {"session_id": "s1", "log": log, "cursor": f"c{offset}", "time": offset, "event": body}
    return json.dumps({"type": "notification", "action": "session.event", "payload": payload})


@asynccontextmanager
async def gateway(script: Script, **options: Any) -> AsyncIterator[Client]:
    async def handler(socket: ServerConnection) -> None:
        async for text in socket:
            request = json.loads(text)
            if request["action"] == "auth":
                told = {"user_id": "u1", "connection_id": "c1", "protocol": 1, "limits": {"in_flight": 8}}
                await socket.send(reply(request, told))
            else:
                await script(socket, request)

    async with serve(handler, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Client(f"ws://127.0.0.1:{port}/ws", "token", **options) as client:
            yield client


async def test_a_request_gets_its_own_answer_whatever_the_order() -> None:
    held: list[dict[str, Any]] = []

    async def script(socket: ServerConnection, request: dict[str, Any]) -> None:
        held.append(request)
        if len(held) == 2:
            for one in reversed(held):
                await socket.send(reply(one, {"was": one["payload"]["n"]}))

    async with gateway(script) as client:
        first, second = await asyncio.gather(client.request("x", {"n": 1}), client.request("x", {"n": 2}))

    assert (first, second) == ({"was": 1}, {"was": 2})
    assert (client.user_id, client.limits) == ("u1", {"in_flight": 8})


async def test_a_refusal_is_raised_with_its_code() -> None:
    async def script(socket: ServerConnection, request: dict[str, Any]) -> None:
        await socket.send(reply(request, {"code": "not_found", "message": "no such session"}, "error"))

    async with gateway(script) as client:
        with pytest.raises(TielineError, match="no such session") as raised:
            await client.request("session.get", {"session_id": "s9"})

    assert raised.value.code == "not_found"


async def test_a_request_without_an_answer_times_out_and_leaves_nothing_behind() -> None:
    async def script(socket: ServerConnection, request: dict[str, Any]) -> None:
        pass

    async with gateway(script) as client:
        with pytest.raises(TielineError, match="timeout"):
            await client.request("x", timeout=0.02)
        assert client._connection is not None
        assert client._connection.pending == 0


async def test_requests_of_one_task_arrive_in_the_order_in_which_they_were_made() -> None:
    seen: list[int] = []

    async def script(socket: ServerConnection, request: dict[str, Any]) -> None:
        seen.append(request["payload"]["n"])
        await socket.send(reply(request, {}))

    async with gateway(script) as client:
        await asyncio.gather(*(client.request("shell.input", {"n": n}) for n in range(1_000)))

    assert seen == list(range(1_000))


async def test_events_come_in_order_and_the_cursors_say_where_to_go_on() -> None:
    async def script(socket: ServerConnection, request: dict[str, Any]) -> None:
        if request["action"] == "session.subscribe":
            logs = {"agent": {"cursor": "c0", "reset": False}, "workspace": {"cursor": "w0", "reset": True}}
            await socket.send(reply(request, {"logs": logs}))
            for offset in range(1, 4):
                await socket.send(event(offset, type="message_chunk", text=str(offset)))
        else:
            await socket.send(reply(request, {}))

    async with gateway(script) as client:
        async with await client.subscribe("s1") as events:
            assert events.joined["workspace"].reset
            texts = [(await anext(events)).body["text"] for _ in range(3)]
        assert texts == ["1", "2", "3"]
        assert events.cursors == {"agent": "c3", "workspace": "w0"}
        with pytest.raises(StopAsyncIteration):
            await anext(events)


async def test_one_connection_follows_a_log_once() -> None:
    async def script(socket: ServerConnection, request: dict[str, Any]) -> None:
        await socket.send(reply(request, {"logs": {}}))

    async with gateway(script) as client:
        async with await client.subscribe("s1", logs=["agent"]):
            with pytest.raises(TielineError, match="conflict"):
                await client.subscribe("s1")
        await (await client.subscribe("s1")).close()


async def test_a_slow_reader_gets_what_was_held_and_is_then_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "MAX_WAITING", 300)

    async def script(socket: ServerConnection, request: dict[str, Any]) -> None:
        await socket.send(reply(request, {"logs": {}}))
        if request["action"] == "session.subscribe":
            for offset in range(1, 50):
                await socket.send(event(offset, type="x"))

    async with gateway(script) as client, await client.subscribe("s1") as events:
        await client.request("wait until all has been sent")
        with pytest.raises(TooSlow):
            _ = [one async for one in events]
        assert events.cursors["agent"] == "c2"


async def test_a_client_that_shall_not_come_back_ends_everything_that_waits() -> None:
    async def script(socket: ServerConnection, request: dict[str, Any]) -> None:
        if request["action"] == "session.subscribe":
            await socket.send(reply(request, {"logs": {}}))
        else:
            await socket.close(4001, '{"retry_after_ms":250}')

    async with gateway(script, reconnect=False) as client:
        events = await client.subscribe("s1")
        changed = client.notifications("changed")
        with pytest.raises(Disconnected) as raised:
            await client.request("x")
        assert (raised.value.come_back, raised.value.retry_after_ms) == (True, 250)
        with pytest.raises(Disconnected):
            await anext(events)
        with pytest.raises(Disconnected):
            await anext(changed)
        with pytest.raises(Disconnected):
            await client.request("y")
        await events.close()


async def test_notifications_reach_those_who_asked_and_the_oldest_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscription, "MAX_NOTIFICATIONS", 2)

    async def script(socket: ServerConnection, request: dict[str, Any]) -> None:
        for n in range(3):
            await socket.send(json.dumps({"type": "notification", "action": "changed", "payload": {"n": n}}))
        await socket.send(reply(request, {}))

    async with gateway(script) as client:
        with client.notifications("changed") as changed:
            await client.request("x")
            assert [await anext(changed), await anext(changed)] == [{"n": 1}, {"n": 2}]
            assert changed.dropped == 1
        with pytest.raises(StopAsyncIteration):
            await anext(changed)


async def test_a_request_of_the_server_is_refused_and_nonsense_is_ignored() -> None:
    answers: list[dict[str, Any]] = []

    async def script(socket: ServerConnection, request: dict[str, Any]) -> None:
        if request.get("type") == "error":
            answers.append(request)
            return
        await socket.send("not json")
        await socket.send(
            json.dumps({"type": "request", "id": "r1", "action": "what-is-this", "payload": {}})
        )
        await socket.send(json.dumps({"type": "response", "id": "unknown", "action": "x", "payload": {}}))
        await socket.send(reply(request, {}))

    async with gateway(script) as client:
        await client.request("x")
        await eventually(lambda: answers)

    assert answers[0]["id"] == "r1"
    assert answers[0]["payload"]["code"] == "unknown_action"


async def test_closing_ends_iterators_quietly() -> None:
    async def script(socket: ServerConnection, request: dict[str, Any]) -> None:
        await socket.send(reply(request, {"logs": {}}))

    async with gateway(script) as client:
        events = await client.subscribe("s1")
        changed = client.notifications("changed")

    with pytest.raises(StopAsyncIteration):
        await anext(events)
    with pytest.raises(StopAsyncIteration):
        await anext(changed)


async def test_nobody_there_is_unavailable() -> None:
    with pytest.raises(TielineError, match="unavailable"):
        async with Client("ws://127.0.0.1:1/ws", "token"):
            pass
