"""Worker: the first hop of the obvious pipeline: from the source's WebSocket to the broker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import nats
from nats.aio.client import Client
from websockets.asyncio.client import connect

from bench.obvious import EVENT, SUBJECT, Published
from bench.workers import Handler, serve_async


async def follow(url: str, client: Client) -> None:
    """Every event of an instance, parsed, wrapped, dumped and published."""
    seq = 0
    async with connect(url) as connection:
        async for raw in connection:
            seq += 1
            event = EVENT.validate_json(raw)
            published = Published(
                session_id="s-bench-obvious-000000000",
                log="agent",
                seq=seq,
                time=int(time.time() * 1000),
                event=event,
            )
            await client.publish(SUBJECT, published.model_dump_json().encode())


@contextlib.asynccontextmanager
async def main() -> AsyncIterator[Mapping[str, Handler]]:
    client = await nats.connect(os.environ["TIELINE_NATS_URL"])
    async with asyncio.TaskGroup() as group:
        following: list[asyncio.Task[None]] = []

        async def join(url: str) -> dict[str, Any]:
            following.append(group.create_task(follow(url, client), name="follow"))
            return {}

        yield {"join": join}
        for task in following:
            task.cancel()
    await client.close()


if __name__ == "__main__":
    serve_async(main)
