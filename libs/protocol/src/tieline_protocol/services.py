"""Service endpoints by the NATS services convention (ADR-32), answered concurrently.

nats-py's own layer runs one handler at a time, drops queued requests when it stops and can fail in STATS; this one is
thin: endpoints are `Bus.serve`, and PING, INFO and STATS are answered for all services, by name and by id.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import structlog

from tieline_protocol import jsontext, logs, subjects, tracing
from tieline_protocol.bus import Bus, Received, Server
from tieline_protocol.errors import TielineError, TimedOut, Unavailable
from tieline_protocol.messages import Request, answer, refusal
from tieline_protocol.metrics import ENDPOINTS

log = structlog.get_logger()

Handler = Callable[[Request], Awaitable[dict[str, Any] | bytes]]
Raw = Callable[[Received], Awaitable[bytes | None] | bytes | None]

_TYPE = "io.nats.micro.v1."


class Services:
    """One replica of a service."""

    def __init__(
        self,
        name: str,
        version: str,
        description: str,
        metadata: Mapping[str, str],
        told: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self.id = secrets.token_hex(8)
        self._identity = {"name": name, "id": self.id, "version": version, "metadata": dict(metadata)}
        self._description = description
        self._started = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
        self.endpoints: dict[str, tuple[str, Server]] = {}
        self.name = name
        self._told = told

    def ping(self) -> dict[str, Any]:
        return {**self._identity, "type": f"{_TYPE}ping_response"}

    def info(self) -> dict[str, Any]:
        endpoints = [
            {"name": name, "subject": subject, "queue_group": self.name, "metadata": {}}
            for name, (subject, _) in self.endpoints.items()
        ]
        return {
            **self._identity,
            "type": f"{_TYPE}info_response",
            "description": self._description,
            "endpoints": endpoints,
        }

    def stats(self) -> dict[str, Any]:
        endpoints = []
        for name, (subject, server) in self.endpoints.items():
            stats = server.stats
            endpoints.append(
                {
                    "name": name,
                    "subject": subject,
                    "queue_group": self.name,
                    "num_requests": stats.requests,
                    "num_errors": stats.errors,
                    "last_error": stats.last_error,
                    "processing_time": stats.processing,
                    "average_processing_time": stats.processing // max(stats.requests, 1),
                    "data": {
                        "in_flight": server.in_flight,
                        "p50": stats.spread.quantile(0.5),
                        "p99": stats.spread.quantile(0.99),
                    },
                }
            )
        return {
            **self._identity,
            "type": f"{_TYPE}stats_response",
            "started": self._started,
            "endpoints": endpoints,
            **({"data": self._told()} if self._told is not None else {}),
        }


@contextlib.asynccontextmanager
async def serving(
    bus: Bus,
    *,
    name: str,
    version: str,
    endpoints: Mapping[str, Handler],
    raw: Mapping[str, Raw] | None = None,
    description: str = "",
    metadata: Mapping[str, str] | None = None,
    limit: int = 256,
    told: Callable[[], dict[str, Any]] | None = None,
) -> AsyncIterator[Services]:
    """Answer `tieline.rpc.<name>.<endpoint>.<user>` in a queue group until the block is left.

    `raw` endpoints get the message itself and may answer with several. `told`: what STATS says besides, as `data`.
    """
    service = Services(name, version, description, metadata or {}, told)
    monitors: list[Server] = []
    handlers = {endpoint: _answering(service, endpoint, handler) for endpoint, handler in endpoints.items()}
    try:
        for endpoint, handle in {**handlers, **(raw or {})}.items():
            subject = subjects.rpc_endpoint(name, endpoint)
            server = await bus.serve(subject, handle, queue=name, limit=limit)
            service.endpoints[endpoint] = (subject, server)
        for verb, tell in (("PING", service.ping), ("INFO", service.info), ("STATS", service.stats)):
            for scope in ((), (name,), (name, service.id)):
                monitor = await bus.serve(subjects.service_verb(verb, *scope), _telling(tell))
                monitors.append(monitor)
        with contextlib.suppress(Unavailable):  # else the reconnect subscribes
            await bus.flush()  # whoever is told that we are ready may ask at once
        with ENDPOINTS.of(service):
            yield service
    finally:
        for server in [*monitors, *(server for _, server in service.endpoints.values())]:
            await server.close()


def _telling(tell: Callable[[], dict[str, Any]]) -> Callable[[Received], Awaitable[bytes]]:
    async def handle(_: Received) -> bytes:
        return jsontext.dumps(tell())

    return handle


def _answering(
    service: Services, endpoint: str, handler: Handler
) -> Callable[[Received], Awaitable[bytes | None]]:
    name = f"{service.name}.{endpoint}"
    attributes = {"rpc.system": "nats", "rpc.service": service.name, "rpc.method": endpoint}

    async def handle(received: Received) -> bytes | None:
        try:
            request = Request.decode(received.data)
            logs.about(user=request.user)
            with tracing.begin(name, "server", attributes, parent=request.traceparent) as span:
                if span.recorded:
                    request = request.model_copy(update={"traceparent": span.traceparent})
                try:
                    async with asyncio.timeout(max(request.budget_ms, 0) / 1000):
                        return answer(await handler(request))
                except TimeoutError as exc:
                    raise TimedOut(f"{endpoint} took longer than {request.budget_ms} ms") from exc
        except TielineError as exc:
            return refused(exc)
        except Exception as exc:  # whoever asked gets an answer, whatever is broken here
            log.exception("a request could not be handled", endpoint=endpoint)
            return refused(TielineError(f"{endpoint}: {type(exc).__name__}"))

    def refused(exc: TielineError) -> bytes:
        stats = service.endpoints[endpoint][1].stats
        stats.errors += 1
        stats.last_error = f"{exc.code}: {exc.message}"
        return refusal(exc)

    return handle
