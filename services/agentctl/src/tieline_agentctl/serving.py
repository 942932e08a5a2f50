"""One HTTP and WebSocket server inside an event loop that belongs to somebody else. No routes here."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext

import uvicorn
from starlette.types import ASGIApp

LINGER = 0.25  # what HTTP requests in flight get at the end before they are cut


class _Server(uvicorn.Server):
    """Signals are the daemon's business, not each server's."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.end = asyncio.Event()

    async def main_loop(self) -> None:
        """Wakes once a second for the Date header, not ten times; there is one of these for every instance."""
        while not self.end.is_set():
            await self.on_tick(0)
            try:
                async with asyncio.timeout(1):
                    await self.end.wait()
            except TimeoutError:
                continue

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 lets the system choose. OSError when somebody else has it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # A peer whose machine vanished says nothing; the kernel finds out. Accepted sockets inherit these.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        sock.bind((host, port))
        sock.listen(512)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


@asynccontextmanager
async def serving(app: ASGIApp, sock: socket.socket) -> AsyncIterator[int]:
    """Serves until the block is left; then every connection is closed, WebSockets too."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        ws_max_size=1 << 40,  # the wire has no limit
        ws_ping_interval=None,  # the wire has no pings; a reader that has paused must not be cut off
        ws_ping_timeout=None,
        server_header=False,
        h11_max_incomplete_event_size=256 * 1024,
        timeout_graceful_shutdown=LINGER,  # type: ignore[arg-type]
        timeout_keep_alive=75,
    )
    server = _Server(config)
    port: int = sock.getsockname()[1]
    task = asyncio.create_task(server.serve(sockets=[sock]), name=f"server on port {port}")
    try:
        while not server.started and not task.done():
            await asyncio.sleep(0.002)
        if task.done():
            task.result()
        yield port
    finally:
        server.end.set()
        try:
            await asyncio.shield(task)
        finally:
            for connection in list(server.server_state.connections):
                if connection.transport is not None:
                    connection.transport.abort()
            if leftovers := list(server.server_state.tasks):
                await asyncio.wait(leftovers, timeout=2)
            sock.close()
