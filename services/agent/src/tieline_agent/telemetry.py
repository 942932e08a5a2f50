"""What operators are told of runs, of the model and of tools: spans by the conventions for generative AI, and numbers.

What users, the model and tools say stands in no number, and in a span only where that is wished for (tracing.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from tieline_protocol import jsontext, tracing
from tieline_protocol.errors import TielineError
from tieline_protocol.naming import Pair
from tieline_protocol.tracing import Span

from tieline_agent import metrics
from tieline_agent.assembly import Delta, Finished, TextDelta
from tieline_agent.model import ModelSettings
from tieline_agent.results import Outcome
from tieline_agent.thread import Thread

AGENT = "expert"


@contextlib.contextmanager
def running(thread: Thread, run_id: str, model: str) -> Iterator[None]:
    """A run, from where this process takes it up to where it ends or is left."""
    run = thread.runs[run_id]
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": AGENT,
        "gen_ai.conversation.id": thread.thread_id,
        "gen_ai.request.model": model,
        "tieline.run.id": run_id,
    }
    with tracing.begin(f"invoke_agent {AGENT}", attributes=attributes, parent=run.traceparent) as span:
        yield
        span.set(
            {
                "tieline.run.reason": run.reason,
                "gen_ai.usage.input_tokens": run.usage.input_tokens,
                "gen_ai.usage.output_tokens": run.usage.output_tokens,
            }
        )
        if run.reason == "error":
            span.fail(run.reason)


class Answer:
    """An answer of the model while it comes."""

    def __init__(self, span: Span, began: float) -> None:
        self._span = span
        self._began = began
        self._first = True
        self._text: list[str] = []

    def heard(self, delta: Delta) -> None:
        """The next piece."""
        if self._first:
            self._first = False
            metrics.MODEL_FIRST.observe(time.monotonic() - self._began)
        if not self._span.recorded:
            return
        if isinstance(delta, TextDelta):
            self._text.append(delta.text)
        elif isinstance(delta, Finished):
            usage = delta.usage
            self._span.set(
                {
                    "gen_ai.response.finish_reasons": [delta.reason],
                    "gen_ai.usage.input_tokens": usage.input_tokens if usage else None,
                    "gen_ai.usage.output_tokens": usage.output_tokens if usage else None,
                }
            )
            self._span.content(lambda: {"gen_ai.output.messages": _said("assistant", "".join(self._text))})


@contextlib.contextmanager
def asking(settings: ModelSettings, model: str, messages: Sequence[Mapping[str, Any]]) -> Iterator[Answer]:
    """One answer of the model."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": model,
        "server.address": urlsplit(settings.base_url).hostname,
    }
    began = time.monotonic()
    outcome = "cancelled"
    try:
        with tracing.begin(f"chat {model}", "client", attributes, parent=tracing.current()) as span:
            span.content(lambda: {"gen_ai.input.messages": jsontext.dumps(list(messages)).decode()})
            yield Answer(span, began)
        outcome = "ok"
    except TielineError as exc:
        outcome = exc.code
        raise
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException:
        outcome = "internal"
        raise
    finally:
        metrics.MODEL.labels(outcome=outcome).inc()
        metrics.MODEL_SECONDS.observe(time.monotonic() - began)


class Calling:
    """A tool while it runs."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self.outcome = "cancelled"

    def ended(self, outcome: Outcome) -> None:
        """How it ended."""
        self.outcome = str(outcome.code or "ok")
        if outcome.code is not None:
            self._span.fail(outcome.code, outcome.error or "")
        else:
            self._span.content(lambda: {"gen_ai.tool.call.result": jsontext.dumps(outcome.result).decode()})


@contextlib.contextmanager
def calling(
    tool_call_id: str, name: str, pair: Pair | None, arguments: Mapping[str, Any]
) -> Iterator[Calling]:
    """One call of a tool."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": tool_call_id,
        "tieline.remote.name": pair.remote if pair else None,
        "tieline.remote.function": pair.function if pair else None,
    }
    began = time.monotonic()
    with tracing.begin(f"execute_tool {name}", attributes=attributes, parent=tracing.current()) as span:
        span.content(lambda: {"gen_ai.tool.call.arguments": jsontext.dumps(dict(arguments)).decode()})
        call = Calling(span)
        try:
            yield call
        finally:
            metrics.TOOL_SECONDS.labels(outcome=call.outcome).observe(time.monotonic() - began)


def _said(role: str, text: str) -> str:
    return jsontext.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}]).decode()
