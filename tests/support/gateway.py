"""A gateway in this process, and a raw frontend that sees every frame as it comes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
from tieline_gateway.access import issue
from tieline_gateway.app import app
from tieline_gateway.config import Config, Limits
from tieline_protocol.service import Common, running
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

SECRET = b"a secret of at least thirty-two bytes"
ORIGIN = "http://app.example"


def token(user: str = "ada", seconds: float = 3600) -> str:
    return issue(user, SECRET, time.time(), seconds)


@contextlib.asynccontextmanager
async def gateway(nats_url: str, *, limits: Limits | None = None, **rest: Any) -> AsyncIterator[str]:
    """A running gateway; yields its URL."""
    config = Config(nats_url, SECRET, port=0, origins=frozenset({ORIGIN}), allow_no_origin=True)
    config = dataclasses.replace(config, limits=limits or Limits(drain_seconds=0.1), **rest)
    async with running(Common("gateway"), app(config)) as facts:
        yield facts["url"]


class Raw:
    """A socket and the frames that came over it, parsed strictly."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.frames: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # the socket has closed
        self._ids = itertools.count(1)
        self._news = asyncio.Event()

    async def read(self) -> None:
        """Keep what comes until the socket closes."""
        async for text in self.socket:
            frame = orjson.loads(text)
            self.frames.append(frame)
            if frame.get("action") == "session.event":
                self.events.append(frame["payload"])
            self._news.set()

    async def until(self, condition: Callable[[], Any], timeout: float = 8) -> Any:
        """Wait for frames until something is true."""
        async with asyncio.timeout(timeout):
            while not (value := condition()):
                self._news.clear()
                await self._news.wait()
            return value

    async def send(self, **frame: Any) -> None:
        await self.socket.send(orjson.dumps(frame), text=True)

    async def answer_to(self, id: Any, timeout: float = 8) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            kinds = ("response", "error")
            return next((f for f in self.frames if f.get("type") in kinds and f.get("id") == id), None)

        frame: dict[str, Any] = await self.until(found, timeout)
        return frame

    async def ask(
        self, action: str, payload: dict[str, Any] | None = None, timeout: float = 8
    ) -> dict[str, Any]:
        """The whole frame that answers a request."""
        id = f"r{next(self._ids)}"
        await self.send(id=id, action=action, payload=payload or {})
        return await self.answer_to(id, timeout)

    def of(self, log: str, session: str = "s1") -> list[dict[str, Any]]:
        return [e for e in self.events if e["log"] == log and e["session_id"] == session]

    def numbers(self, log: str = "agent", session: str = "s1") -> list[int]:
        """What the test put into the events of a log as `n`, in the order of arrival."""
        return [e["event"]["n"] for e in self.of(log, session) if "n" in e["event"]]


@contextlib.asynccontextmanager
async def frontend(url: str, user: str = "ada", *, auth: bool = True, **options: Any) -> AsyncIterator[Raw]:
    """A connected frontend, authenticated unless told otherwise."""
    options = {"compression": None, "max_size": None, "proxy": None, **options}
    socket = await connect(url, **options)
    raw = Raw(socket)
    reader = asyncio.create_task(_quietly(raw), name="raw frontend")
    try:
        if auth:
            welcome = await raw.ask("auth", {"token": token(user)})
            assert welcome["payload"]["user_id"] == user, welcome
        yield raw
    finally:
        reader.cancel()
        await asyncio.wait([reader])
        if socket.close_code is None:  # closing what was reset already, the library trips over its transport
            await socket.close()


async def _quietly(raw: Raw) -> None:
    try:
        with contextlib.suppress(ConnectionClosed):
            await raw.read()
    finally:
        raw.done.set_result(None)
