"""Worker: the baseline of one viewer: a `websockets` client connected directly to the source, no system between."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from bench.workers import BenchError, Handler, serve_async


class Direct:
    """One connection to an instance's agent stream."""

    def __init__(self, stack: contextlib.AsyncExitStack) -> None:
        self._stack = stack
        self._connection: ClientConnection | None = None

    async def join(self, url: str) -> dict[str, Any]:
        self._connection = await self._stack.enter_async_context(connect(url))
        return {}

    async def count(self, wanted: int) -> dict[str, Any]:
        """Receive `wanted` events; says when the last one came."""
        assert self._connection is not None
        counted = 0
        async for _ in self._connection:
            counted += 1
            if counted == wanted:
                return {"ended": time.monotonic()}
        raise BenchError(f"the connection ended after {counted} events")


@contextlib.asynccontextmanager
async def main() -> AsyncIterator[Mapping[str, Handler]]:
    async with contextlib.AsyncExitStack() as stack:
        direct = Direct(stack)
        yield {"join": direct.join, "count": direct.count}


if __name__ == "__main__":
    serve_async(main)
