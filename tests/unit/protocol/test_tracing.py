"""Spans of this process, sent to a real collector; and what is left where there is none."""

import asyncio
import socket
import subprocess
import sys
import threading
import time

import pytest
from tieline_protocol import tracing
from tieline_protocol.errors import Code, Refused

from tests.support.otlp import Collector

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def test_without_an_address_the_traceparent_goes_on_and_nothing_of_opentelemetry_is_loaded() -> None:
    code = """
import sys
import tieline_gateway.app, tieline_streams.app, tieline_agent.app, tieline_remotes.app
from tieline_protocol import tracing
with tracing.sending("gateway", "1"), tracing.begin("x", parent=sys.argv[1]) as span:
    assert not span.recorded
    assert span.traceparent == tracing.current() == sys.argv[1]
assert tracing.current() is None
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    environment = {"PATH": "/usr/bin:/bin"}
    run = [sys.executable, "-c", code, PARENT]
    done = subprocess.run(run, capture_output=True, text=True, env=environment, check=False)

    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize("text", [None, "", "x", "00-0-0-01", PARENT + "0", PARENT.replace("a", "g")])
def test_what_is_no_traceparent_has_no_trace(text: str | None) -> None:
    assert tracing.trace_id(text) is None


def test_spans_are_children_of_whoever_asked_and_parents_of_whoever_is_asked(found: Collector) -> None:
    with tracing.sending("test", "1.2"):
        with tracing.begin("outer", "server", {"a": 1, "b": None}, parent=PARENT) as outer:
            assert tracing.current() == outer.traceparent != PARENT
            with tracing.begin("inner", "client", parent=tracing.current()) as inner:
                inner.set({"tools": ["x", "y"], "unknown": None})
            assert tracing.current() == outer.traceparent
        assert tracing.current() is None

    first, second = found.of(TRACE)
    assert (first.service, first.name, first.kind) == ("tieline-test", "outer", "server")
    assert (first.parent, first.attributes) == ("b7ad6b7169203331", {"a": 1})
    assert (second.name, second.kind, second.parent) == ("inner", "client", first.id)
    assert second.attributes == {"tools": ["x", "y"]}
    assert inner.traceparent == f"00-{TRACE}-{second.id}-01"


def test_work_that_nobody_asked_for_is_a_trace_of_its_own(found: Collector) -> None:
    with tracing.sending("test", "1"), tracing.begin("alone", parent=None):
        pass

    [span] = found.spans
    assert (span.parent, span.trace == TRACE) == ("", False)


def test_a_trace_that_its_sender_does_not_record_is_not_recorded_here(found: Collector) -> None:
    with tracing.sending("test", "1"), tracing.begin("quiet", parent=PARENT[:-2] + "00") as span:
        assert not span.recorded
        assert span.traceparent is not None
        assert span.traceparent.startswith(f"00-{TRACE}-")
        assert span.traceparent.endswith("-00")

    assert not found.spans


def test_an_error_has_its_code_and_never_what_somebody_said(found: Collector) -> None:
    with tracing.sending("test", "1"):
        with pytest.raises(Refused), tracing.begin("refused", parent=PARENT):
            raise Refused(Code.BUSY, "the secret of the user")
        with pytest.raises(ValueError, match="secret"), tracing.begin("broken", parent=PARENT):
            raise ValueError("the secret of the user")

    refused, broken = found.of(TRACE)
    assert refused.error
    assert refused.attributes["error.type"] == refused.message == "busy"
    assert broken.attributes["error.type"] == broken.message == "ValueError"
    assert b"secret" not in found.raw


@pytest.mark.parametrize("wished", [False, True])
def test_what_is_said_is_told_only_where_that_is_wished_for(
    found: Collector, monkeypatch: pytest.MonkeyPatch, wished: bool
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", str(wished).lower())
    with tracing.sending("test", "1"), tracing.begin("chat", parent=PARENT) as span:
        span.content(lambda: {"gen_ai.input.messages": "the secret of the user"})

    assert (b"secret" in found.raw) is wished


async def test_a_task_that_outlives_its_request_leaves_its_trace() -> None:
    async def work() -> str | None:
        tracing.apart()
        return tracing.current()

    with tracing.begin("one", parent=PARENT):
        assert await asyncio.create_task(work()) is None
        assert tracing.current() == PARENT


async def test_tasks_go_on_in_the_trace_that_started_them(found: Collector) -> None:
    async def work() -> str | None:
        await asyncio.sleep(0)
        return tracing.current()

    with tracing.sending("test", "1"):
        with tracing.begin("one", parent=PARENT) as one:
            task = asyncio.create_task(work())
        with tracing.begin("two", parent=None):
            assert await task == one.traceparent


def test_a_collector_that_does_not_answer_does_not_hold_the_end_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        monkeypatch.setattr(tracing, "_LAST", 0.2)
        with tracing.sending("test", "1"):
            with tracing.begin("lost", parent=None):
                pass
            began = time.monotonic()
        assert time.monotonic() - began < 5
        for thread in threading.enumerate():  # what still tries would disturb other tests
            if thread.name == "last spans":
                thread.join(5)
                assert not thread.is_alive()


def test_an_address_without_the_extra_is_told_and_does_no_harm(
    found: Collector, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with tracing.sending("test", "1"), tracing.begin("lost", parent=PARENT) as span:
        assert span.traceparent == PARENT

    assert "tieline-protocol[otel] is missing" in "".join(capsys.readouterr())
    assert not found.spans
