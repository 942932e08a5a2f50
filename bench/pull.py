"""Worker: the obvious replay: one stored message for each event, fetched by a pull consumer of nats-py and parsed.

The consumer is the viewer itself: no second hop, nobody signs in, and what was read is not acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import nats
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig

from bench import events
from bench.workers import BenchError, Handler, serve_async

_SUBJECT, _STREAM = "bench.pull", "BENCH_PULL"
_FETCH, _TOGETHER = 500, 500


@contextlib.asynccontextmanager
async def main() -> AsyncIterator[Mapping[str, Handler]]:
    client = await nats.connect(os.environ["TIELINE_NATS_URL"])
    stream = client.jetstream(publish_async_max_pending=2 * _TOGETHER)

    async def store(count: int, size: int) -> dict[str, Any]:
        """Keep that many events on disk, each numbered."""
        await stream.add_stream(StreamConfig(name=_STREAM, subjects=[_SUBJECT]))
        event = json.loads(events.message_chunk(size))
        for first in range(0, count, _TOGETHER):
            sent = [
                await stream.publish_async(_SUBJECT, json.dumps({"offset": offset, "event": event}).encode())
                for offset in range(first, min(first + _TOGETHER, count))
            ]
            await asyncio.gather(*sent)
        return {}

    async def replay(count: int) -> dict[str, Any]:
        """Seconds from the wish to the last event, parsed."""
        began = time.monotonic()
        config = ConsumerConfig(ack_policy=AckPolicy.NONE)
        consumer = await stream.pull_subscribe(_SUBJECT, stream=_STREAM, config=config)
        seen = 0
        while seen < count:
            for message in await consumer.fetch(_FETCH):
                if json.loads(message.data)["offset"] != seen:
                    raise BenchError(f"event {seen} is missing")
                seen += 1
        seconds = time.monotonic() - began
        await consumer.unsubscribe()
        return {"seconds": seconds}

    yield {"store": store, "replay": replay}
    await client.close()


if __name__ == "__main__":
    serve_async(main)
