"""Viewers that do not read, and floods: each delays only itself, and nothing grows without a bound."""

from __future__ import annotations

import asyncio
import base64
import functools
import itertools
import os
import random
import socket as sockets
import struct
import time
from typing import Any
from urllib.parse import urlsplit

import orjson
import psutil
import pytest
from tieline_gateway import metrics
from tieline_gateway.config import Limits

from tests.support.eventually import eventually
from tests.support.gateway import Raw, frontend, gateway, token
from tests.support.nats_server import NatsServer
from tests.support.owner import Owner, owning

STREAM = random.Random(1)


class Stuck:
    """A frontend on a bare TCP socket, with a small receive buffer, that reads when it is told to."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 0)
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> Stuck:
        raw = sockets.socket()
        raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 16 * 1024)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, self._address)
        self.reader, self.writer = await asyncio.open_connection(sock=raw, limit=32 * 1024)
        key = base64.b64encode(os.urandom(16)).decode()
        self.writer.write(
            f"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101")
        await self.ask("auth", {"token": token()})
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    def send(self, action: str, payload: dict[str, Any]) -> None:
        text = orjson.dumps({"id": action, "action": action, "payload": payload})
        assert len(text) < 65_536
        self.writer.write(b"\x81" + struct.pack(">BH", 0xFE, len(text)) + bytes(4) + text)

    async def ask(self, action: str, payload: dict[str, Any]) -> bytes:
        self.send(action, payload)
        return (await self.frame())[1]

    async def frame(self) -> tuple[int, bytes]:
        opcode, length = await self.reader.readexactly(2)
        if length == 126:
            (length,) = struct.unpack(">H", await self.reader.readexactly(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", await self.reader.readexactly(8))
        return opcode & 0x0F, await self.reader.readexactly(length)

    async def to_the_end(self) -> int | None:
        """Read all that comes; the close code, or None where the connection just ended."""
        try:
            while True:
                opcode, body = await self.frame()
                if opcode == 8:
                    return int(struct.unpack(">H", body[:2])[0])
        except (asyncio.IncompleteReadError, ConnectionError):
            return None


def lasts(front: Raw, n: int, session: str) -> bool:
    return front.numbers(session=session)[-1:] == [n]


async def flood(owner: Owner, megabytes: int, piece: int = 30_000) -> None:
    """Shell output that cannot be compressed, about as fast as the log takes it."""
    data = base64.b64encode(STREAM.randbytes(piece * 3 // 4)).decode()
    for n in range(megabytes * 1_000_000 // piece):
        await owner.workspace.emit({"type": "shell_output", "n": n, "data": data}, confirm=n % 16 == 0)


@pytest.mark.timeout(40)
async def test_a_viewer_that_does_not_read_delays_nobody_and_costs_little(nats_server: NatsServer) -> None:
    """B42"""
    limits = Limits(drain_seconds=0.1, stuck_seconds=1.0, close_seconds=0.5)
    async with (
        owning(nats_server.url) as owner,
        owning(nats_server.url, "bob", "s2") as other,
        gateway(nats_server.url, limits=limits) as url,
        Stuck(url) as stuck,
        frontend(url, "bob") as bob,
    ):
        await stuck.ask("session.subscribe", {"session_id": "s1"})
        await bob.ask("session.subscribe", {"session_id": "s2", "logs": ["agent"]})
        closed = metrics.CLOSED.labels(code="TOO_SLOW")
        closed_before = closed._value.get()
        process = psutil.Process()
        before = process.memory_info().rss
        delays: list[float] = []

        async def talk() -> None:
            for n in itertools.count():
                began = time.monotonic()
                await other.agent.emit({"type": "message_chunk", "n": n}, confirm=False)
                await bob.until(functools.partial(lasts, bob, n, "s2"))
                delays.append(time.monotonic() - began)
                await asyncio.sleep(0.05)

        talking = asyncio.create_task(talk())
        await flood(owner, 30)
        grown = process.memory_info().rss - before
        await eventually(lambda: closed._value.get() > closed_before)
        talking.cancel()

    delays.sort()
    assert delays[int(len(delays) * 0.99)] < 0.2
    assert grown < 50_000_000


@pytest.mark.timeout(30)
async def test_a_viewer_that_reads_again_in_time_is_caught_up_from_the_log(nats_server: NatsServer) -> None:
    """B42"""
    async with (
        owning(nats_server.url) as owner,
        gateway(nats_server.url) as url,
        Stuck(url) as slow,
        frontend(url) as quick,
    ):
        workspace = {"session_id": "s1", "logs": ["workspace"], "cursors": {"workspace": "now"}}
        await slow.ask("session.subscribe", workspace)
        await quick.ask("session.subscribe", workspace)
        await flood(owner, 6)
        count = owner.workspace.last - 1
        await quick.until(lambda: len(quick.numbers("workspace")) == count)
        numbers: list[int] = []
        while len(numbers) < count:
            numbers.append(orjson.loads((await slow.frame())[1])["payload"]["event"]["n"])

    assert numbers == quick.numbers("workspace") == list(range(count))


@pytest.mark.timeout(30)
async def test_who_is_closed_for_not_reading_is_told_to_come_back(nats_server: NatsServer) -> None:
    """B42"""
    limits = Limits(drain_seconds=0.1, stuck_seconds=0.5, close_seconds=8)
    async with (
        owning(nats_server.url) as owner,
        gateway(nats_server.url, limits=limits) as url,
        Stuck(url) as slow,
        frontend(url) as quick,
    ):
        await slow.ask("session.subscribe", {"session_id": "s1", "logs": ["workspace"]})
        await flood(owner, 3)
        closed = metrics.CLOSED.labels(code="TOO_SLOW")
        before = closed._value.get()
        await eventually(lambda: closed._value.get() > before)
        opcode = 1
        while opcode == 1:
            opcode, body = await slow.frame()
        await quick.ask("session.get", {"session_id": "s1"})

    assert opcode == 8
    assert struct.unpack(">H", body[:2])[0] == 4002
    assert orjson.loads(body[2:])["retry_after_ms"] > 0


@pytest.mark.timeout(60)
@pytest.mark.parametrize("megabytes", [20, pytest.param(100, marks=pytest.mark.long)])
async def test_shell_output_never_delays_a_permission_request_or_an_answer(
    nats_server: NatsServer, megabytes: int
) -> None:
    async with (
        owning(nats_server.url) as owner,
        gateway(nats_server.url) as url,
        frontend(url) as front,
    ):
        await front.ask("session.subscribe", {"session_id": "s1"})
        delays: list[float] = []

        async def ask() -> None:
            for n in itertools.count():
                began = time.monotonic()
                await owner.agent.emit({"type": "permission_request", "n": n}, confirm=False)
                await front.until(functools.partial(lasts, front, n, "s1"))
                delays.append(time.monotonic() - began)
                began = time.monotonic()
                await front.ask("agent.cancel", {"session_id": "s1"})
                delays.append(time.monotonic() - began)
                await asyncio.sleep(0.02)

        asking = asyncio.create_task(ask())
        await flood(owner, megabytes)
        asking.cancel()

    delays.sort()
    assert delays[int(len(delays) * 0.95)] < 0.2  # the flood's source and its reader share this process


async def test_a_permission_request_overtakes_shell_output_that_waits(nats_server: NatsServer) -> None:
    async with (
        owning(nats_server.url) as owner,
        gateway(nats_server.url) as url,
        Stuck(url) as slow,
        frontend(url) as quick,
    ):
        await slow.ask("session.subscribe", {"session_id": "s1", "cursors": {"agent": "now"}})
        await quick.ask("session.subscribe", {"session_id": "s1", "cursors": {"agent": "now"}})
        await flood(owner, 5)
        await owner.agent.emit({"type": "permission_request", "n": -1})
        await quick.until(lambda: quick.numbers() == [-1])
        before = 0
        while b"permission_request" not in (text := (await slow.frame())[1]):
            before += len(text)

    assert before < 1_500_000


async def test_answers_beyond_every_bound_close_the_socket(nats_server: NatsServer) -> None:
    limits = Limits(drain_seconds=0.1, control=200_000, close_seconds=0.3)
    async with (
        owning(nats_server.url) as owner,
        gateway(nats_server.url, limits=limits) as url,
        Stuck(url) as stuck,
        frontend(url) as other,
    ):

        async def large(request: object) -> dict[str, str]:
            return {"content": "x" * 100_000}

        owner.handlers["workspace.file-content"] = large
        closed = metrics.CLOSED.labels(code="TOO_SLOW")
        before = closed._value.get()
        for n in range(40):
            text = {"session_id": "s1", "path": f"{n}"}
            frame = orjson.dumps({"id": n, "action": "workspace.file-content", "payload": text})
            stuck.writer.write(bytes((0x81, 0x80 | len(frame))) + bytes(4) + frame)
        await eventually(lambda: closed._value.get() > before)
        await stuck.to_the_end()
        told = await other.ask("agent.stderr", {"session_id": "s1"})

    assert told["type"] == "response"
