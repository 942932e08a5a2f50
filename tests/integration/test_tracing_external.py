"""An external remote hears of the trace that a call belongs to, as any HTTP service does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from tieline_protocol import tracing
from tieline_protocol.remotes import External
from tieline_remotes.addresses import networks
from tieline_remotes.external import Externals

from tests.support.otlp import collector

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture
def heard() -> Iterator[tuple[str, list[str | None]]]:
    """An address that answers null, and the traceparents that came there."""
    came: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            came.append(self.headers.get("traceparent"))
            self.send_response(200)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"null")

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="external")
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/rpc", came
    server.shutdown()
    server.server_close()
    thread.join()


async def call(url: str) -> None:
    async def silent(_: object) -> None:
        """Nobody hears the progress."""

    async with Externals(networks("127.0.0.0/8")) as externals:
        assert await externals.call(External(kind="http", url=url), "r-1", "look", {}, silent) == b"null"


async def test_without_a_trace_there_is_no_header(heard: tuple[str, list[str | None]]) -> None:
    url, came = heard
    await call(url)
    with tracing.begin("call", parent=PARENT):
        await call(url)

    assert came == [None, PARENT]


async def test_the_header_names_the_span_of_the_call(
    heard: tuple[str, list[str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, came = heard
    with collector() as found:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        with tracing.sending("remotes", "1"), tracing.begin("call http", "client", parent=PARENT):
            await call(url)
        [span] = found.of(TRACE)

    assert came == [f"00-{TRACE}-{span.id}-01"]
