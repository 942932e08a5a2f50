"""Traces: which work belongs together, from a frontend's frame to the tool and back, by `traceparent` (W3C).

The `traceparent` goes along with every request in any case, and its trace's id stands in the log lines. Spans are made
where the extra `tieline-protocol[otel]` is installed and OTEL_EXPORTER_OTLP_ENDPOINT says where to send them (OTLP over
HTTP; the SDK's other OTEL_* variables hold too). Else nothing of OpenTelemetry is imported, and a span is only its
parent's traceparent, handed on.

Names and attributes: the semantic conventions of OpenTelemetry for RPC and generative AI. What users, models and tools
say is told only where OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is true.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import structlog

from tieline_protocol.errors import TielineError

if TYPE_CHECKING:
    from opentelemetry.trace import Span as OtelSpan

log = structlog.get_logger()

Kind = Literal["server", "client", "internal"]
Value = str | bool | int | float | Sequence[str]

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}\Z")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_LAST = 3.0  # s for the spans that are not sent yet when the service stops

_current: contextvars.ContextVar[str | None] = contextvars.ContextVar("traceparent", default=None)
_maker: _Maker | None = None


def current() -> str | None:
    """The traceparent of what is being done, to hand on to whoever is asked for a part of it."""
    return _current.get()


def apart() -> None:
    """This task outlives what started it, and what it does from now on is not a part of that."""
    _current.set(None)


def trace_id(traceparent: str | None) -> str | None:
    """The trace's id in a traceparent; None where there is none."""
    match = _TRACEPARENT.match(traceparent or "")
    return match[1] if match else None


class Span:
    """A piece of work; here one that nobody records. Use as a block, or call `end`.

    `traceparent` is what goes along with everything that is asked for because of it.
    """

    __slots__ = ("_before", "traceparent")

    def __init__(self, traceparent: str | None) -> None:
        self.traceparent = traceparent

    @property
    def recorded(self) -> bool:
        """Whether it is worth the while to find out more about it."""
        return False

    def set(self, attributes: Mapping[str, Value | None]) -> None:
        """Facts about the work; None: not known."""

    def content(self, attributes: Callable[[], Mapping[str, str]]) -> None:
        """The same for what users, models and tools say: asked for and told only where that is wished for."""

    def fail(self, code: str, message: str = "") -> None:
        """It ended with an error."""

    def end(self) -> None:
        """It is over."""

    def __enter__(self) -> Span:
        self._before = _current.set(self.traceparent)
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: object) -> None:
        _current.reset(self._before)
        if isinstance(exc, TielineError):
            self.fail(exc.code, exc.message)
        elif exc is not None:
            self.fail(type(exc).__name__)
        self.end()


def begin(
    name: str,
    kind: Kind = "internal",
    attributes: Mapping[str, Value | None] | None = None,
    *,
    parent: str | None,
) -> Span:
    """Work begins for whoever sent `parent` (None: nobody did; a trace of its own)."""
    return Span(parent) if _maker is None else _maker.span(name, kind, attributes or {}, parent)


def part(name: str, kind: Kind = "internal", attributes: Mapping[str, Value | None] | None = None) -> Span:
    """A part of what is being done; where that is no part of anything it is not told of."""
    return Span(None) if current() is None else begin(name, kind, attributes, parent=current())


class _Recorded(Span):
    __slots__ = ("_content", "_span")

    def __init__(self, traceparent: str, span: OtelSpan, content: bool) -> None:
        super().__init__(traceparent)
        self._span = span
        self._content = content

    @property
    def recorded(self) -> bool:
        return self._span.is_recording()

    def set(self, attributes: Mapping[str, Value | None]) -> None:
        self._span.set_attributes({name: value for name, value in attributes.items() if value is not None})

    def content(self, attributes: Callable[[], Mapping[str, str]]) -> None:
        if self._content and self.recorded:
            self._span.set_attributes(dict(attributes()))

    def fail(self, code: str, message: str = "") -> None:
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attribute("error.type", str(code))
        # A message may repeat what a user or a tool said.
        self._span.set_status(Status(StatusCode.ERROR, message if self._content else str(code)))

    def end(self) -> None:
        self._span.end()


class _Maker:
    """Makes the spans of this process."""

    def __init__(self, service: str, version: str) -> None:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._api = trace
        resource = Resource.create({"service.name": f"tieline-{service}", "service.version": version})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("tieline", version)
        self._content = os.environ.get(_CONTENT, "").lower() in ("true", "1", "span_only", "span_and_event")
        kinds = trace.SpanKind
        self._kinds = {"server": kinds.SERVER, "client": kinds.CLIENT, "internal": kinds.INTERNAL}

    def span(self, name: str, kind: Kind, attributes: Mapping[str, Value | None], parent: str | None) -> Span:
        known = {key: value for key, value in attributes.items() if value is not None}
        span = self._tracer.start_span(
            name, context=self._context(parent), kind=self._kinds[kind], attributes=known
        )
        context = span.get_span_context()
        made = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        return _Recorded(made, span, self._content)

    def _context(self, parent: str | None) -> Any:
        from opentelemetry.context import Context

        if trace_id(parent) is None:
            return Context()
        assert parent is not None
        _, trace, span, flags = parent.split("-")
        remote = self._api.SpanContext(
            int(trace, 16), int(span, 16), is_remote=True, trace_flags=self._api.TraceFlags(int(flags, 16))
        )
        return self._api.set_span_in_context(self._api.NonRecordingSpan(remote), Context())

    def close(self) -> None:
        """Send what is left, if it can be sent soon."""
        # The SDK would wait for half a minute where nobody answers.
        last = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        last.start()
        last.join(_LAST)


@contextlib.contextmanager
def sending(service: str, version: str) -> Iterator[None]:
    """Make spans of this process and send them, until the block is left; none where no address is configured."""
    global _maker
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        yield
        return
    try:
        _maker = maker = _Maker(service, version)
    except ImportError as exc:
        log.error(
            "an address for traces is set, and the extra tieline-protocol[otel] is missing", error=str(exc)
        )
        yield
        return
    try:
        yield
    finally:
        _maker = None
        maker.close()
