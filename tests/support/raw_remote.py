"""Remotes over a raw socket: what a browser writes and hears, frame by frame."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tieline_protocol.bus import BusSettings
from tieline_protocol.service import Common, running
from tieline_remotes.app import make
from tieline_remotes.config import Config

from tests.support.gateway import Raw

ECHO = {
    "name": "echo",
    "description": "Gives back what it gets",
    "parameters": {"type": "object", "properties": {"value": {}}, "required": ["value"]},
}


@contextlib.asynccontextmanager
async def remotes(nats_url: str) -> AsyncIterator[None]:
    """A replica of the remotes service, in this process."""
    async with running(Common("remotes"), make(Config(BusSettings(nats_url, "remotes"), drain=0.2))):
        yield


def told(front: Raw, action: str) -> list[dict[str, Any]]:
    """The payloads of the notifications of one kind, in the order of arrival."""
    return [
        f["payload"] for f in front.frames if f.get("action") == action and f.get("type") == "notification"
    ]


async def register(
    front: Raw, name: str = "browser", functions: Any = (ECHO,), **more: Any
) -> dict[str, Any]:
    """The whole answer to `remote-connect`."""
    functions = list(functions) if isinstance(functions, tuple) else functions
    return await front.ask("remote-connect", {"remotename": name, "functions": functions, **more})


async def call(front: Raw, value: Any = 1, name: str = "browser", **more: Any) -> str:
    """Begin a call of `echo`; its requestId."""
    payload = {"remotename": name, "function": "echo", "args": {"value": value}, **more}
    answer = await front.ask("remote-call", payload)
    assert answer["type"] == "response", answer
    return str(answer["payload"]["requestId"])


async def asked(front: Raw, request_id: str) -> dict[str, Any]:
    """The call as it reached its owner."""

    def found() -> dict[str, Any] | None:
        return next((one for one in told(front, "remote-call") if one["requestId"] == request_id), None)

    call: dict[str, Any] = await front.until(found)
    return call


async def ended(front: Raw, request_id: str, timeout: float = 8) -> dict[str, Any]:
    """The end of a call, as the caller hears it; it must be the only one."""

    def found() -> list[dict[str, Any]]:
        return [one for one in told(front, "remote-call-result") if one["requestId"] == request_id]

    [end] = await front.until(found, timeout)
    assert isinstance(end, dict)
    return end


async def say(front: Raw, request_id: str, **outcome: Any) -> None:
    """An owner's answer, as a notification."""
    await front.send(
        type="notification", action="remote-call-result", payload={"requestId": request_id, **outcome}
    )


async def say_text(front: Raw, request_id: str, result: str) -> None:
    """The same with the text of a result as it is, be it JSON or not."""
    await front.socket.send(
        '{"type":"notification","action":"remote-call-result",'
        f'"payload":{{"requestId":"{request_id}","result":{result}}}}}'
    )


@contextlib.asynccontextmanager
async def echoing(front: Raw) -> AsyncIterator[None]:
    """Every call that reaches the socket is answered with its argument until the block is left."""

    async def answer() -> None:
        answered: set[str] = set()

        def new() -> list[dict[str, Any]]:
            return [one for one in told(front, "remote-call") if one["requestId"] not in answered]

        while True:
            for one in await front.until(new, timeout=60):
                answered.add(one["requestId"])
                await say(front, one["requestId"], result=one["args"]["value"])

    task = asyncio.create_task(answer(), name="echo")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
