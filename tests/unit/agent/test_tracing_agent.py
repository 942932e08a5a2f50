"""What is told of runs, the model and tools: always how it went, and what was said only where that is wished for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import REGISTRY
from tieline_agent import events, results, telemetry
from tieline_agent.assembly import Finished, TextDelta, Usage
from tieline_agent.model import ModelError, ModelSettings
from tieline_agent.thread import Thread
from tieline_protocol import tracing
from tieline_protocol.errors import Code
from tieline_protocol.naming import Pair

from tests.support.otlp import Collector

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
SETTINGS = ModelSettings("https://models.example:8443/v1", "key", "m-1")
SAID = [{"role": "user", "content": "the question"}]


def thread() -> Thread:
    """One with a run under way that somebody asked for."""
    made = Thread("t1")
    _, said = made.received("first", "the question", [], PARENT)
    for event in said:
        made.apply(event)
    return made


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def work(made: Thread) -> None:
    """A run that asks once, calls once, and ends."""
    run_id = next(iter(made.runs))
    with telemetry.running(made, run_id, "m-1"):
        with telemetry.asking(SETTINGS, "m-1", SAID) as answer:
            answer.heard(TextDelta("the "))
            answer.heard(TextDelta("answer"))
            answer.heard(Finished("stop", Usage(3, 2)))
        with telemetry.calling("c1", "box__look", Pair("box", "look"), {"what": "the argument"}) as call:
            call.ended(results.success("the result"))
        made.apply(events.run_ended(run_id, "answer", Usage(3, 2)))


def test_a_run_is_told_with_its_answers_and_calls_and_nothing_that_was_said(found: Collector) -> None:
    with tracing.sending("agent", "1"):
        work(thread())
    run, chat, tool = found.of(TRACE)

    assert (run.name, chat.name, tool.name) == ("invoke_agent expert", "chat m-1", "execute_tool box__look")
    assert (run.parent, chat.parent, tool.parent) == ("b7ad6b7169203331", run.id, run.id)
    assert run.attributes["tieline.run.reason"] == "answer"
    assert chat.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert (chat.attributes["gen_ai.usage.input_tokens"], chat.attributes["gen_ai.usage.output_tokens"]) == (
        3,
        2,
    )
    assert chat.attributes["server.address"] == "models.example"
    assert not any(
        word in found.raw for word in (b"the question", b'answer"', b"the argument", b"the result")
    )


def test_what_was_said_is_told_where_that_is_wished_for(
    found: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    with tracing.sending("agent", "1"):
        work(thread())
    _, chat, tool = found.of(TRACE)

    assert "the question" in chat.attributes["gen_ai.input.messages"]
    assert "the answer" in chat.attributes["gen_ai.output.messages"]
    assert "the argument" in tool.attributes["gen_ai.tool.call.arguments"]
    assert "the result" in tool.attributes["gen_ai.tool.call.result"]


def test_what_fails_is_told_with_its_code_and_counted(found: Collector) -> None:
    before = value("tieline_model_requests_total", outcome="timeout")
    slow = value("tieline_agent_tool_seconds_count", outcome="disconnected")
    with tracing.sending("agent", "1"), tracing.begin("x", parent=PARENT):
        with pytest.raises(ModelError), telemetry.asking(SETTINGS, "m-1", SAID):
            raise ModelError(Code.TIMEOUT, "the model was silent")
        with telemetry.calling("c1", "box__look", None, {}) as call:
            call.ended(results.failure(Code.DISCONNECTED, "the remote disconnected"))
    _, chat, tool = found.of(TRACE)

    assert (chat.error, chat.attributes["error.type"]) == (True, "timeout")
    assert (tool.error, tool.attributes["error.type"]) == (True, "disconnected")
    assert value("tieline_model_requests_total", outcome="timeout") == before + 1
    assert value("tieline_agent_tool_seconds_count", outcome="disconnected") == slow + 1


async def test_an_answer_that_nobody_waits_for_any_more_is_counted_as_cancelled() -> None:
    before = value("tieline_model_requests_total", outcome="cancelled")

    async def ask() -> Any:
        with telemetry.asking(SETTINGS, "m-1", SAID):
            await asyncio.Event().wait()

    task = asyncio.create_task(ask())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    assert value("tieline_model_requests_total", outcome="cancelled") == before + 1
