"""Worker: the baseline of remote calls: nats-py's own request and reply, on either end, with nothing between."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.workers import PATIENCE, BenchError, Handler, serve_async

_SUBJECT = "bench.bare"
_BODY = b"x" * 128  # about as large as the frame of a call


class Bare:
    """One connection to the broker."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def reply(self) -> dict[str, Any]:
        """Answer everything from now on."""

        async def answer(msg: Msg) -> None:
            await msg.respond(msg.data)

        await self._client.subscribe(_SUBJECT, cb=answer)
        await self._client.flush()
        return {}

    async def call(self, count: int, at_once: int) -> dict[str, Any]:
        """Make `count` requests, `at_once` of them under way; how long all took, and each one (milliseconds)."""
        taken: list[float] = []
        numbers = iter(range(count))

        async def ask() -> None:
            for _ in numbers:
                sent = time.monotonic_ns()
                answered = await self._client.request(_SUBJECT, _BODY, timeout=PATIENCE)
                if answered.data != _BODY:
                    raise BenchError("a request was answered with something else")
                taken.append((time.monotonic_ns() - sent) / 1e6)

        began = time.monotonic_ns()
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(ask(), name="bare requests")
        return {"seconds": (time.monotonic_ns() - began) / 1e9, "latencies": taken}


@contextlib.asynccontextmanager
async def main() -> AsyncIterator[Mapping[str, Handler]]:
    client = await nats.connect(os.environ["TIELINE_NATS_URL"])
    try:
        bare = Bare(client)
        yield {"reply": bare.reply, "call": bare.call}
    finally:
        await client.close()


if __name__ == "__main__":
    serve_async(main)
