"""Which trace a request belongs to: its `traceparent` (W3C).

That of OpenTelemetry's current span where this program uses OpenTelemetry; else of the remote call that is being
answered, or of the block `within`. Nothing of OpenTelemetry is imported here.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar

_within: ContextVar[str | None] = ContextVar("tieline_traceparent", default=None)


def current() -> str | None:
    """The traceparent of what is being done, to hand on with whatever is asked for a part of it."""
    api = sys.modules.get("opentelemetry.trace")
    if api is not None:
        span = api.get_current_span().get_span_context()
        if span.is_valid:
            return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    return _within.get()


@contextlib.contextmanager
def within(traceparent: str | None) -> Iterator[None]:
    """What is done in this block belongs to that trace, spans of OpenTelemetry too; None: to none that is known."""
    before = _within.set(traceparent)
    try:
        if "opentelemetry.trace" not in sys.modules:
            yield
        else:
            with _attached(traceparent):
                yield
    finally:
        _within.reset(before)


@contextlib.contextmanager
def _attached(traceparent: str | None) -> Iterator[None]:
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": traceparent} if traceparent is not None else {}
    token = context.attach(TraceContextTextMapPropagator().extract(carrier, context=context.Context()))
    try:
        yield
    finally:
        context.detach(token)
