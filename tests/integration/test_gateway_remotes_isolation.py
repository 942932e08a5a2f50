"""Nobody reaches what is somebody else's: ten thousand random attempts with every id known."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from tieline_protocol import jetstream, subjects
from tieline_protocol.bus import Bus, Received
from tieline_protocol.errors import Code, Refused
from tieline_protocol.messages import Request, answer, refusal
from websockets.asyncio.client import connect

from tests.support.gateway import frontend, gateway, token
from tests.support.nats_server import NatsServer
from tests.support.owner import owning
from tests.support.raw_remote import ECHO, asked, call, ended, register, remotes, say, told

ATTEMPTS = 10_000
SOCKETS = 10
AT_ONCE = 8
SECRET = "only-for-ada"  # stands in everything that is hers
THREAD = "t1"


@contextlib.asynccontextmanager
async def threads(bus: Bus) -> AsyncIterator[None]:
    """The agent service as far as it matters here: Ada has one thread, nobody else has any."""

    async def handle(received: Received) -> bytes:
        request = Request.decode(received.data)
        if received.subject.split(".")[3] == "list":
            mine = [{"thread_id": THREAD, "title": SECRET}] if request.user == "ada" else []
            return answer({"threads": mine})
        if request.user == "ada" and request.payload.get("thread_id") == THREAD:
            return answer({"title": SECRET})
        return refusal(Refused(Code.NOT_FOUND, "no such thread"))

    await jetstream.Bucket(bus, subjects.BUCKET_THREADS).put(subjects.thread_key("ada", THREAD), b"{}")
    async with contextlib.AsyncExitStack() as stack:
        for endpoint in ("list", "get", "delete", "message", "cancel"):
            subject = subjects.rpc_endpoint("agent", endpoint)
            server = await bus.serve(subject, handle, queue="agent", limit=10_000)
            stack.push_async_callback(server.close)
        await bus.flush()
        yield


def attempts(chance: random.Random, request_id: str) -> tuple[str, dict[str, Any]]:
    """One attempt of somebody who knows every id."""
    choices: list[tuple[str, dict[str, Any]]] = [
        ("remote-call", {"remotename": "private", "function": "echo", "args": {"value": "PWNED"}}),
        ("remote-call-result", {"requestId": request_id, "result": "PWNED"}),
        ("remote-call-result", {"result": "PWNED", "requestId": request_id}),
        ("remote-call-result", {"requestId": request_id, "error": "PWNED"}),
        ("remote-call-progress", {"requestId": request_id, "message": "PWNED"}),
        ("remote-call-cancel", {"requestId": request_id}),
        ("remote-disconnect", {"remotename": "private"}),
        ("remote-list", {}),
        ("session.subscribe", {"session_id": "s1"}),
        ("session.subscribe", {"session_id": "s1", "logs": ["agent"], "cursors": {"agent": "start"}}),
        ("session.get", {"session_id": "s1"}),
        ("agent.prompt", {"session_id": "s1", "text": "PWNED"}),
        ("shell.input", {"session_id": "s1", "data": "PWNED"}),
        ("shell.buffer", {"session_id": "s1"}),
        ("thread.subscribe", {"thread_id": THREAD, "cursor": "start"}),
        ("thread.subscribe", {"thread_id": "s1"}),
        ("session.subscribe", {"session_id": THREAD}),
        ("thread.get", {"thread_id": THREAD}),
        ("thread.message", {"thread_id": THREAD, "content": "PWNED"}),
        ("thread.cancel", {"thread_id": THREAD}),
        ("thread.delete", {"thread_id": THREAD}),
        ("thread.list", {}),
    ]
    return chance.choice(choices)


async def attack(url: str, user: str, number: int, request_id: str) -> list[bytes]:
    """Many attempts on one socket, many of them at once; all that came back."""
    chance = random.Random(number)
    heard: list[bytes] = []
    async with connect(url, compression=None, proxy=None) as socket:
        await socket.send(
            orjson.dumps({"id": 0, "action": "auth", "payload": {"token": token(user)}}), text=True
        )
        await socket.recv()
        sent = answered = 0
        while answered < ATTEMPTS // SOCKETS:
            while sent < ATTEMPTS // SOCKETS and sent - answered < AT_ONCE:
                sent += 1
                action, payload = attempts(chance, request_id)
                await socket.send(orjson.dumps({"id": sent, "action": action, "payload": payload}), text=True)
            frame = await socket.recv(decode=False)
            heard.append(frame)
            answered += orjson.loads(frame)["type"] in ("response", "error")
    return heard


@pytest.mark.timeout(120)
async def test_ten_thousand_attempts_of_other_users_reach_nothing(nats_server: NatsServer, bus: Bus) -> None:
    """B01 B29"""
    async with (
        remotes(nats_server.url),
        owning(nats_server.url) as session,
        threads(bus),
        gateway(nats_server.url) as url,
        frontend(url) as owner,
        frontend(url) as caller,
    ):
        described = {**ECHO, "description": SECRET}
        await register(owner, "private", [described])
        await session.agent.emit({"type": "message_chunk", "text": SECRET})
        request_id = await call(caller, SECRET, "private", timeout_ms=600_000)
        await asked(owner, request_id)
        before = len(session.asked)

        users = ["eve", "mallory", "a.b", "*", ">", "u_ada", "ada ", "ad", "ada.private", "Ada"]
        began = time.monotonic()
        heard = await asyncio.gather(
            *(attack(url, users[n % len(users)], n, request_id) for n in range(SOCKETS))
        )
        took = time.monotonic() - began

        # Everything is as if nobody had tried.
        assert len(told(owner, "remote-call")) == 1
        assert told(owner, "remote-call-cancel") == []
        assert told(owner, "remote-replaced") == []
        assert told(caller, "remote-call-progress") == []
        await say(owner, request_id, result="real")
        end = await ended(caller, request_id)
        assert end.get("result") == "real", end
        assert [r["remotename"] for r in (await caller.ask("remote-list"))["payload"]["remotes"]] == [
            "private"
        ]
        assert len(session.asked) == before

    frames = [orjson.loads(frame) for frames in heard for frame in frames]
    assert len(frames) == ATTEMPTS, took
    assert not any(SECRET in frame.decode() for frames in heard for frame in frames)
    good = [frame for frame in frames if frame["type"] == "response"]
    assert {frame["action"] for frame in good} == {"remote-list", "thread.list"}
    assert all(next(iter(frame["payload"].values())) == [] for frame in good)
    refused = [frame for frame in frames if frame["type"] == "error"]
    assert {frame["payload"]["code"] for frame in refused} == {"not_found"}
