"""Worker: the second hop of the obvious pipeline: from the broker to every viewer's WebSocket."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

import nats
from nats.aio.msg import Msg
from websockets.asyncio.server import ServerConnection, serve

from bench.obvious import SUBJECT, Notification, Payload, Published
from bench.workers import Handler, serve_async


@contextlib.asynccontextmanager
async def main() -> AsyncIterator[Mapping[str, Handler]]:
    viewers: set[ServerConnection] = set()

    async def hold(viewer: ServerConnection) -> None:
        viewers.add(viewer)
        try:
            await viewer.wait_closed()
        finally:
            viewers.discard(viewer)

    async def received(message: Msg) -> None:
        published = Published.model_validate_json(message.data)
        payload = Payload(
            session_id=published.session_id,
            log=published.log,
            cursor=f"1.{published.seq}.0",
            time=published.time,
            event=published.event,
        )
        text = Notification(payload=payload).model_dump_json()
        for viewer in list(viewers):
            await viewer.send(text)

    client = await nats.connect(os.environ["TIELINE_NATS_URL"])
    await client.subscribe(SUBJECT, cb=received)
    await client.flush()
    async with serve(hold, "127.0.0.1", 0, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]

        async def where() -> dict[str, Any]:
            return {"url": f"ws://127.0.0.1:{port}/"}

        yield {"where": where}
    await client.close()


if __name__ == "__main__":
    serve_async(main)
