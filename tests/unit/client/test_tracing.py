"""Which trace the requests of a program belong to."""

import subprocess
import sys

from tieline import tracing

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def test_a_request_belongs_to_the_block_that_it_is_made_in_and_to_nothing_after_it() -> None:
    assert tracing.current() is None
    with tracing.within(PARENT):
        assert tracing.current() == PARENT
        with tracing.within(None):
            assert tracing.current() is None
    assert tracing.current() is None


def test_a_program_with_opentelemetry_hands_on_its_own_span() -> None:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("a program")
    with tracing.within(PARENT), tracer.start_as_current_span("a step") as span:
        context = span.get_span_context()
        told = tracing.current()

    assert isinstance(span, ReadableSpan)
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert told == f"00-{TRACE}-{context.span_id:016x}-01"


def test_a_block_that_belongs_to_nothing_has_no_trace_where_opentelemetry_is_in_use_either() -> None:
    from opentelemetry import trace

    with tracing.within(PARENT):
        assert tracing.current() == PARENT
        with tracing.within(None):
            assert not trace.get_current_span().get_span_context().is_valid
            assert tracing.current() is None


def test_nothing_of_opentelemetry_is_loaded_for_it() -> None:
    code = "import sys, tieline; print([n for n in sys.modules if n.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
