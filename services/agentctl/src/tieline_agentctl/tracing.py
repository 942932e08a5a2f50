"""Traces: what the daemon does for a request that came with a `traceparent` (W3C) is a part of that trace.

Spans are made where OpenTelemetry is installed (the extra `otel`) and OTEL_EXPORTER_OTLP_ENDPOINT says where to send
them; else the `traceparent` is only handed on: to the agent, to the backend's tools, into the log lines. What nobody
sent a `traceparent` for is not told of. Nothing that users, agents or tools say stands in a span.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Literal

import structlog

if TYPE_CHECKING:
    from opentelemetry.trace import Span as OtelSpan

log = structlog.get_logger()

Kind = Literal["server", "internal"]
Value = str | int

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}\Z")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_LAST = 3.0  # s for the spans that are not sent yet when the daemon ends

_current: ContextVar[str | None] = ContextVar("traceparent", default=None)
_tracer: Any = None


def current() -> str | None:
    """The traceparent of what is being done."""
    return _current.get()


def apart() -> Context:
    """For a task that outlives what starts it, and is no part of that."""
    context = copy_context()
    context.run(_current.set, None)
    return context


def trace_id(traceparent: str | None) -> str | None:
    """The trace's id; None where that is no traceparent."""
    match = _TRACEPARENT.match(traceparent or "")
    return match[1] if match else None


class Work:
    """A piece of work. `traceparent` goes along with what is asked for because of it; None: a part of nothing."""

    def __init__(self, traceparent: str | None, span: OtelSpan | None = None) -> None:
        self.traceparent = traceparent
        self._span = span

    def set(self, attributes: Mapping[str, Value | list[str]]) -> None:
        """Facts about the work."""
        if self._span is not None:
            self._span.set_attributes(attributes)

    def fail(self, code: str) -> None:
        """It ended with an error."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", code)
            self._span.set_status(Status(StatusCode.ERROR, code))


@contextlib.contextmanager
def work(name: str, kind: Kind, parent: str | None, attributes: Mapping[str, Value]) -> Iterator[Work]:
    """What is done in this block is done for whoever sent `parent`. An exception that leaves it is a failure."""
    if trace_id(parent) is None:
        parent = None
    span = None if _tracer is None or parent is None else _begin(name, kind, parent, attributes)
    doing = Work(parent if span is None else _told(span), span)
    before = _current.set(doing.traceparent)
    try:
        yield doing
    except BaseException as error:
        doing.fail(str(getattr(error, "code", "") or type(error).__name__))
        raise
    finally:
        _current.reset(before)
        if span is not None:
            span.end()


def _begin(name: str, kind: Kind, parent: str, attributes: Mapping[str, Value]) -> OtelSpan:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({"traceparent": parent}, Context())
    made: OtelSpan = _tracer.start_span(name, context, SpanKind[kind.upper()], attributes)
    return made


def _told(span: OtelSpan) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


@contextlib.contextmanager
def sending() -> Iterator[None]:
    """Make spans and send them until the block is left; none where no address is configured."""
    global _tracer
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        yield
        return
    try:
        provider = _provider()
    except ImportError as error:
        log.error(
            "an address for traces is set, and the extra tieline-agentctl[otel] is missing", error=str(error)
        )
        yield
        return
    _tracer = provider.get_tracer("tieline")
    try:
        yield
    finally:
        _tracer = None
        # The SDK would wait for half a minute where nobody answers.
        last = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
        last.start()
        last.join(_LAST)


def _provider() -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    facts = {"service.name": "tieline-agentctl"}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        facts["service.version"] = importlib.metadata.version("tieline-agentctl")
    provider = TracerProvider(resource=Resource.create(facts), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
