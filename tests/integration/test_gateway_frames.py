"""What a frontend may send by mistake or on purpose: it gets a clear error, and nothing else happens."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Any

import orjson
import pytest
from tieline_protocol.messages import Request

from tests.support.gateway import Raw, frontend, gateway
from tests.support.nats_server import NatsServer
from tests.support.owner import owning

ADA = {"session_id": "s1"}

GARBAGE: list[tuple[str, str]] = [
    ("[]", "object"),
    ('"x"', "object"),
    ("42", "object"),
    ("null", "object"),
    ("{}", "action"),
    ('{"action":7,"id":"g"}', "action"),
    ('{"action":"agent.prompt"}', "id"),
    ('{"action":"agent.prompt","id":""}', "id"),
    ('{"action":"agent.prompt","id":{}}', "id"),
    ('{"action":"agent.prompt","id":true}', "id"),
    ('{"action":"agent.prompt","id":"' + "x" * 10_000 + '"}', "id"),
    ('{"action":"agent.prompt","id":"g","payload":[1]}', "payload"),
    ('{"action":"agent.prompt","id":"g","payload":"{}"}', "payload"),
    ('{"action":"agent.prompt","id":"g","type":"nope"}', "type"),
    ('{"action":"agent.prompt","id":"g","payload":{"session_id":"s1"}}', "text"),
    ('{"action":"agent.prompt","id":"g","payload":{"session_id":"s1","text":7}}', "text"),
    ('{"action":"shell.resize","id":"g","payload":{"session_id":"s1","cols":"80","rows":24}}', "cols"),
    ('{"action":"shell.resize","id":"g","payload":{"session_id":"s1","cols":0,"rows":0}}', "rows"),
    ('{"action":"session.subscribe","id":"g","payload":{"session_id":"s1","logs":["nope"]}}', "logs"),
    (
        '{"action":"session.subscribe","id":"g","payload":{"session_id":"s1","cursors":{"agent":"x"}}}',
        "cursor",
    ),
    ('{"action":"agent.prompt","id":"g","payload":{"session_id":"s1","text":NaN}}', "JSON"),
    ('{"action":"agent.prompt","id":"g","payload":{"session_id":"s1","text":-Infinity}}', "JSON"),
    ('{"action":"agent.pro', "JSON"),
    ("", "JSON"),
]


async def works(front: Raw) -> None:
    """The next frame is answered as if nothing had been."""
    told = await front.ask("agent.cancel", ADA)
    assert told["type"] == "response"


@pytest.mark.parametrize(("text", "named"), GARBAGE)
async def test_a_bad_frame_is_answered_with_what_is_wrong_and_the_next_one_works(
    nats_server: NatsServer, text: str, named: str
) -> None:
    """B15 B21"""
    async with owning(nats_server.url), gateway(nats_server.url) as url, frontend(url) as front:
        await front.socket.send(text)
        told = await front.until(lambda: [f for f in front.frames if f.get("type") == "error"])
        await works(front)

    [error] = told
    assert error["payload"]["code"] == "bad_request"
    assert named in error["payload"]["message"]
    assert error["id"] == ("g" if '"id":"g"' in text and named != "JSON" else None)


async def test_an_unknown_action_says_so(nats_server: NatsServer) -> None:
    async with owning(nats_server.url), gateway(nats_server.url) as url, frontend(url) as front:
        told = await front.ask("agent.frobnicate", ADA)
        await works(front)

    assert told["payload"]["code"] == "unknown_action"
    assert told["action"] == "agent.frobnicate"


async def test_a_binary_frame_is_answered(nats_server: NatsServer) -> None:
    async with owning(nats_server.url), gateway(nats_server.url) as url, frontend(url) as front:
        await front.socket.send(b"\x00\x01")
        await front.until(lambda: any(f["type"] == "error" for f in front.frames))
        await works(front)


async def test_answers_and_notifications_that_nobody_asked_for_are_ignored(nats_server: NatsServer) -> None:
    async with owning(nats_server.url), gateway(nats_server.url) as url, frontend(url) as front:
        for kind in ("response", "error", "notification"):
            await front.send(type=kind, id="x", action="agent.prompt", payload={})
        await works(front)

    assert [f["type"] for f in front.frames] == ["response", "response"]


async def test_an_id_may_be_a_number_and_come_back_as_one(nats_server: NatsServer) -> None:
    async with owning(nats_server.url), gateway(nats_server.url) as url, frontend(url) as front:
        await front.send(id=7, action="agent.cancel", payload=ADA)
        told = await front.answer_to(7)

    assert told["id"] == 7


async def test_an_id_that_is_still_pending_is_a_conflict_and_free_once_answered(
    nats_server: NatsServer,
) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        go = asyncio.Event()

        async def wait(request: Request) -> dict[str, Any]:
            await go.wait()
            return {"state": "done"}

        owner.handlers["agent.cancel"] = wait
        await front.send(id="same", action="agent.cancel", payload=ADA)
        await front.send(id="same", action="agent.stderr", payload=ADA)
        refused = await front.answer_to("same")
        go.set()
        await front.until(lambda: len([f for f in front.frames if f.get("id") == "same"]) == 2)
        await front.send(id="same", action="agent.stderr", payload=ADA)
        await front.until(lambda: len([f for f in front.frames if f.get("id") == "same"]) == 3)

    assert refused["payload"]["code"] == "conflict"
    answers = [f for f in front.frames if f.get("id") == "same"][1:]
    assert [(f["type"], f["action"]) for f in answers] == [
        ("response", "agent.cancel"),
        ("response", "agent.stderr"),
    ]


async def test_text_that_is_not_utf8_closes_that_socket_only(nats_server: NatsServer) -> None:
    """B19"""
    async with (
        owning(nats_server.url),
        gateway(nats_server.url) as url,
        frontend(url) as front,
        frontend(url, "ada") as other,
    ):
        mask = b"\x00\x00\x00\x00"
        front.socket.transport.write(b"\x81\x82" + mask + b"\xff\xfe")
        await front.socket.wait_closed()
        await works(other)

    assert front.socket.close_code == 1007


async def test_half_an_emoji_reaches_the_owner_as_a_replacement_character(nats_server: NatsServer) -> None:
    """B20"""
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await front.socket.send(
            r'{"id":"\ud83d","action":"agent.prompt","payload":{"session_id":"s1","text":"a \ud83d z"}}'
        )
        told = await front.until(lambda: [f for f in front.frames if f["action"] == "agent.prompt"])
        await works(front)

    assert told[0]["type"] == "response"
    assert told[0]["id"] == "\N{REPLACEMENT CHARACTER}"
    assert owner.asked[0][1].payload["text"] == "a \N{REPLACEMENT CHARACTER} z"


@pytest.mark.parametrize("depth", [500, 1_000, 2_000, 100_000])
async def test_deep_nesting_gets_one_answer_and_the_next_frame_works(
    nats_server: NatsServer, depth: int
) -> None:
    """B22"""
    nested = "[" * depth + "]" * depth
    async with owning(nats_server.url), gateway(nats_server.url) as url, frontend(url) as front:
        for field in ("x", "answers"):
            payload = f'{{"session_id":"s1","question_id":"q","{field}":{nested}}}'
            await front.socket.send(f'{{"id":"deep","action":"question.answer","payload":{payload}}}')
        await front.until(lambda: len([f for f in front.frames if f.get("type") == "error"]) == 2)
        await works(front)

    assert {f["payload"]["code"] for f in front.frames if f["type"] == "error"} == {"bad_request"}


async def test_a_frame_above_the_limit_closes_with_1009_and_the_client_can_come_back(
    nats_server: NatsServer,
) -> None:
    """B26"""
    async with owning(nats_server.url), gateway(nats_server.url) as url:
        async with frontend(url) as front:
            payload = {**ADA, "path": "a", "diff": "x" * 1_100_000, "original_hash": ""}
            told = await front.ask("workspace.file-update", payload)
            await front.socket.send("x" * (7 * 1024 * 1024 + 1))
            await front.socket.wait_closed()
        async with frontend(url) as again:
            await works(again)

    assert told["type"] == "response"
    assert front.socket.close_code == 1009


async def test_events_pings_and_answers_never_mix_within_a_frame(nats_server: NatsServer) -> None:
    """B52"""
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await front.ask("session.subscribe", {"session_id": "s1", "logs": ["agent", "workspace"]})

        async def events() -> None:
            for n in range(1_000):
                await owner.agent.emit({"type": "message_chunk", "n": n}, confirm=False)
                if n == 500:
                    await owner.agent.emit({"type": "tool_call", "text": "x" * 65_536}, confirm=False)
                if n % 50 == 0:
                    await asyncio.sleep(0)

        async def pings() -> None:
            for _ in range(200):
                await (await front.socket.ping())

        async def requests() -> None:
            for n in range(100):
                await front.send(id=f"q{n}", action="agent.stderr", payload=ADA)
            for n in range(100):
                await front.answer_to(f"q{n}")

        async with asyncio.TaskGroup() as group:
            for work in (events(), pings(), requests()):
                group.create_task(work)
        await front.until(lambda: len(front.numbers()) == 1_000)

    assert front.numbers() == list(range(1_000))
    assert front.socket.close_code in (None, 1000)


async def test_a_close_in_the_middle_of_a_flood_is_a_whole_frame(nats_server: NatsServer) -> None:
    """B52"""
    async with owning(nats_server.url) as owner, contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(gateway(nats_server.url))
        async with frontend(url) as front:
            await front.ask("session.subscribe", {"session_id": "s1", "logs": ["agent"]})
            for n in range(300):
                await owner.agent.emit({"type": "message_chunk", "n": n, "t": "x" * 1000}, confirm=False)
            await stack.aclose()
            await front.socket.wait_closed()
            await front.done

    assert front.socket.close_code == 4000
    assert front.numbers() == list(range(len(front.numbers())))


async def test_strange_replies_of_an_owner_become_errors(nats_server: NatsServer) -> None:
    """B15 B22"""
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        from tieline_protocol import subjects

        replies = [
            b"",
            b"[]",
            b"nonsense",
            b'{"error":7}',
            b'{"payload":7}',
            b"\xff\xfe",
            struct.pack(">I", 1),
        ]
        await owner.leave()

        async def strange(received: Any) -> bytes:
            return replies.pop()

        server = await owner.bus.serve(subjects.commands("ada", "s1"), strange)
        count = len(replies)
        answers = [await front.ask("agent.stderr", ADA) for _ in range(count)]
        await server.close()
        await owner.serve()
        await works(front)

    assert {a["type"] for a in answers} == {"error"}
    assert {a["payload"]["code"] for a in answers} == {"internal"}
    assert orjson.dumps(answers)
