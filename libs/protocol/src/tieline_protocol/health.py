"""Probes: /livez (the loop turns; never depends on NATS), /readyz (with reasons), /metrics, on an internal port."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tieline_protocol.metrics import SERVICE

_LOOK = 0.25  # s
_LOOKS = 60

Check = Callable[[], str | None]


class Health:
    """What a service says of itself. A check returns why the service is not ready, or None."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._lags = (0.0, 0.0)  # of this quarter of a minute, and of the one before
        self.checks: dict[str, Check] = {}
        self.notes: dict[str, Check] = {}
        self.started = False
        self.stopping = False

    def reasons(self) -> dict[str, str]:
        """Why the service is not ready; empty when it is."""
        if self.stopping:
            return {"service": "stopping"}
        if not self.started:
            return {"service": "starting"}
        return {name: reason for name, check in self.checks.items() if (reason := check()) is not None}

    @property
    def lag(self) -> float:
        """The longest that a timer waited for the event loop lately, in seconds."""
        return max(self._lags)

    async def _watch_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            worst = 0.0
            for _ in range(_LOOKS):
                due = loop.time() + _LOOK
                await asyncio.sleep(_LOOK)
                worst = max(worst, loop.time() - due)
                self._lags = (max(worst, self._lags[0]), self._lags[1])
            self._lags = (0.0, worst)

    def _app(self) -> Starlette:
        async def livez(_: Request) -> Response:
            return PlainTextResponse("ok\n")

        async def readyz(_: Request) -> Response:
            reasons = self.reasons()
            notes = {name: note for name, check in self.notes.items() if (note := check()) is not None}
            return JSONResponse(
                {"ready": not reasons, "reasons": reasons, "notes": notes}, 503 if reasons else 200
            )

        async def metrics(_: Request) -> Response:
            return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

        return Starlette(
            routes=[Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", metrics)]
        )

    @contextlib.asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[str]:
        """Serve the probes; yields the base URL. Port 0 means any free one. Raises OSError."""
        # Bound here, since uvicorn ends the whole process where it cannot bind.
        listener = socket.create_server((host, port), family=_family(host))
        bound = listener.getsockname()[1]
        config = uvicorn.Config(
            self._app(), log_config=None, lifespan="off", access_log=False, ws="none", timeout_keep_alive=1
        )
        server = _Embedded(config)
        task = asyncio.create_task(server.serve([listener]), name="health server")
        watching = asyncio.create_task(self._watch_loop(), name="lag of the event loop")
        try:
            with SERVICE.of(self):
                yield f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{bound}"
        finally:
            watching.cancel()
            server.should_exit = True
            server.force_exit = True
            await asyncio.wait([task, watching])
            listener.close()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class _Embedded(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]  # signals are the service's, see service.py
        yield
