"""Spans of the daemon, sent to a real collector; and what is left where there is none."""

import asyncio

import pytest
from tieline_agentctl import tracing
from tieline_agentctl.envelope import RequestFailed
from tieline_agentctl.scope import Scope

from tests.support.otlp import Collector

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def test_work_is_a_child_of_the_request_and_parent_of_what_it_asks_for(found: Collector) -> None:
    with tracing.sending():
        with tracing.work("agent.prompt", "server", PARENT, {"rpc.method": "agent.prompt"}) as outer:
            assert tracing.current() == outer.traceparent != PARENT
            with tracing.work("invoke_agent", "internal", tracing.current(), {}) as inner:
                inner.set({"gen_ai.response.finish_reasons": ["end_turn"]})
        assert tracing.current() is None

    first, second = found.of(TRACE)
    assert (first.service, first.name, first.kind) == ("tieline-agentctl", "agent.prompt", "server")
    assert (first.parent, first.attributes) == ("b7ad6b7169203331", {"rpc.method": "agent.prompt"})
    assert (second.parent, second.error) == (first.id, False)


def test_what_fails_says_how_and_not_what_was_said(found: Collector) -> None:
    with tracing.sending(), pytest.raises(RequestFailed), tracing.work("agent.prompt", "server", PARENT, {}):
        raise RequestFailed("BAD_REQUEST", "a secret")

    [span] = found.of(TRACE)
    assert (span.error, span.message, span.attributes) == (True, "BAD_REQUEST", {"error.type": "BAD_REQUEST"})
    assert b"a secret" not in found.raw


@pytest.mark.parametrize("parent", [None, "", "x", f"00-{'0' * 31}-b7ad6b7169203331-01"])
def test_what_nobody_sent_a_trace_for_is_not_told_of(found: Collector, parent: str | None) -> None:
    with tracing.sending(), tracing.work("GET /health", "server", parent, {}) as doing:
        assert doing.traceparent is None

    assert found.spans == []


def test_where_spans_go_nowhere_the_trace_goes_on() -> None:
    with tracing.sending(), tracing.work("agent.prompt", "server", PARENT, {}) as doing:
        doing.set({"x": 1})
        doing.fail("BAD_REQUEST")

        assert doing.traceparent == tracing.current() == PARENT


async def test_a_task_that_outlives_a_request_is_no_part_of_it() -> None:
    async def told() -> str | None:
        return tracing.current()

    scope = Scope()
    with tracing.work("POST /api/v1/start", "server", PARENT, {}):
        watch = scope.spawn(told(), "watch")
    assert await watch is None
    assert await asyncio.create_task(told()) is None
    await scope.close()
