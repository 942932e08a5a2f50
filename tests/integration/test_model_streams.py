"""One answer of the model over real HTTP, from a server that does what providers do on bad days."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import openai  # loading it is no part of any wait
import pytest
from tieline_agent.assembly import Assembly, CallDelta, Delta, Finished, ReasoningDelta, TextDelta, Usage
from tieline_agent.model import Model, ModelError, ModelSettings
from tieline_protocol.errors import Code

from tests.support.eventually import eventually
from tests.support.model import ModelServer, dripping, model_server, saying, steps

assert openai

HI = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with model_server() as running:
        yield running


def model(server: ModelServer, **more: Any) -> Model:
    patience = {"idle": 1.0, "total": 8.0, "connect": 1.0, "after_finish": 0.3, **more}
    return Model(ModelSettings(server.url, "no key", "m", **patience), chance=lambda: 0.99)


async def deltas(server: ModelServer, **more: Any) -> list[Delta]:
    async with model(server, **more) as asked:
        return [delta async for delta in asked.stream(HI, [])]


async def failure(server: ModelServer, **more: Any) -> tuple[ModelError, list[Delta]]:
    """How a request failed, and what came before."""
    came: list[Delta] = []

    async def listen() -> None:
        async for delta in asked.stream(HI, []):
            came.append(delta)  # noqa: PERF401  # what came before the failure counts

    async with model(server, **more) as asked:
        with pytest.raises(ModelError) as caught:
            await listen()
    return caught.value, came


def text(came: list[Delta]) -> str:
    return "".join(delta.text for delta in came if isinstance(delta, TextDelta))


async def test_an_answer_comes_in_pieces_and_ends_with_its_count_of_tokens(server: ModelServer):
    server.says(
        steps({"reasoning": "hm"}, {"text": "Hel"}, {"text": "lo"}, {"finish": "stop"}, {"usage": [7, 2]})
    )

    assert await deltas(server) == [
        ReasoningDelta("hm"),
        TextDelta("Hel"),
        TextDelta("lo"),
        Finished("stop", Usage(7, 2)),
    ]
    assert server.requests[0]["stream_options"] == {"include_usage": True}
    assert "tools" not in server.requests[0]


async def test_tools_model_and_key_are_sent_as_they_are_set(server: ModelServer):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    async with model(server) as asked:
        _ = [delta async for delta in asked.stream(HI, [tool], model="another")]

    assert (server.requests[0]["model"], server.requests[0]["tools"]) == ("another", [tool])
    assert server.state.headers[0]["authorization"] == "Bearer no key"


async def test_half_an_emoji_in_the_history_does_not_fail_the_request(server: ModelServer):
    """B20: the other parts: the model's request goes out."""
    async with model(server) as asked:
        stream = asked.stream([{"role": "user", "content": "ok \ud83d end"}], [])
        assert [delta async for delta in stream]

    assert server.requests[0]["messages"][0]["content"] == "ok \ufffd end"


@pytest.mark.parametrize(
    "call",
    [
        [
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": None}},
            {"index": 0, "function": {"arguments": "{}"}},
        ],
        [{"id": "a", "function": {"name": "f", "arguments": "{}"}}],
        [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": {}}}],
        [
            {"index": 0, "id": "a", "function": {"name": "f"}},
            {"index": 0, "id": None, "function": {"name": None, "arguments": "{}"}},
        ],
        [
            {"index": 0, "id": "a", "function": None},
            {"index": 0, "function": {"name": "f", "arguments": "{}"}},
        ],
    ],
)
async def test_calls_are_read_however_they_are_written(server: ModelServer, call: list[dict[str, Any]]):
    """B54: (b) null arguments; missing index, id, arguments; an object where text should be."""
    server.says(steps(*({"delta": {"tool_calls": [piece]}} for piece in call), {"finish": "tool_calls"}))
    assembly = Assembly()
    for delta in await deltas(server):
        if isinstance(delta, CallDelta):
            assembly.add(delta)

    assert [(each.id, each.name, each.arguments) for each in assembly.calls] == [("a", "f", "{}")]


@pytest.mark.parametrize("after", ["0.05", "0"])
async def test_a_busy_provider_is_asked_again_after_the_time_that_it_says(server: ModelServer, after: str):
    server.says(
        {"status": 429, "headers": {"Retry-After": after}},
        {"status": 500, "headers": {"retry-after-ms": "1"}},
        saying("Hello"),
    )
    began = time.monotonic()

    assert text(await deltas(server)) == "Hello"
    assert time.monotonic() - began < 0.7, "not the waits of its own"
    assert len(server.requests) == 3


async def test_a_wait_beyond_the_deadline_is_not_waited_for(server: ModelServer):
    server.says({"status": 429, "headers": {"Retry-After": "60"}, "error": {"message": "slow down"}})
    failed, _ = await failure(server)

    assert failed.code is Code.RATE_LIMITED
    assert "slow down" in failed.message


async def test_a_provider_that_keeps_failing_is_given_up(server: ModelServer):
    server.says({"status": 503, "headers": {"retry-after-ms": "1"}}, then="repeat")
    failed, _ = await failure(server, tries=3)

    assert (failed.code, len(server.requests)) == (Code.UNAVAILABLE, 3)


@pytest.mark.parametrize(
    ("status", "code"), [(400, Code.BAD_REQUEST), (401, Code.UNAUTHORIZED), (404, Code.BAD_REQUEST)]
)
async def test_a_refusal_is_told_at_once(server: ModelServer, status: int, code: Code):
    """B12: a provider that still answers 400 gives a readable error, not a hang."""
    server.says({"status": status, "error": {"message": "no such thing", "code": "x"}})
    failed, _ = await failure(server)

    assert (failed.code, len(server.requests)) == (code, 1)
    assert ("no such thing" in failed.message) == (status != 401)


async def test_an_invalid_request_is_refused_as_by_the_real_provider(server: ModelServer):
    tool = {"type": "function", "function": {"name": "a.b"}}
    async with model(server) as asked:
        with pytest.raises(ModelError, match="does not match pattern"):
            _ = [delta async for delta in asked.stream(HI, [tool])]


async def test_nobody_listening_is_told_after_some_tries():
    async with model_server() as gone:
        pass
    failed, _ = await failure(gone, tries=2)

    assert failed.code is Code.UNAVAILABLE
    assert "connection" in failed.message


@pytest.mark.parametrize(
    ("before", "end"),
    [
        ([], {"stall": True}),
        ([{"text": "one "}, {"text": "two "}, {"text": "three"}], {"stall": True}),
        ([], {"comments": 0.02}),
        ([{"text": "one "}, {"text": "two "}, {"text": "three"}], {"comments": 0.02}),
    ],
)
async def test_a_silent_model_ends_within_the_idle_limit(
    server: ModelServer, before: list[Any], end: dict[str, Any]
):
    """B63: (a) headers then silence, (b) silence after three chunks, (c) comments only."""
    server.says(steps(*before, end))
    began = time.monotonic()
    failed, came = await failure(server)

    assert time.monotonic() - began < 2.0
    assert (failed.code, len(server.requests)) == (Code.TIMEOUT, 1)
    assert text(came) == "".join(step["text"] for step in before)
    await eventually(lambda: server.state.open_streams == 0)


async def test_empty_pieces_are_silence_too(server: ModelServer):
    """B63: what keeps the connection alive is no answer."""
    server.says(dripping({"delta": {}}, 0.1, 20))
    failed, _ = await failure(server)

    assert failed.code is Code.TIMEOUT


async def test_a_model_that_never_comes_to_an_end_is_ended(server: ModelServer):
    server.says(dripping({"text": "x"}, 0.05, 200))
    failed, came = await failure(server, total=0.4)

    assert failed.code is Code.TIMEOUT
    assert text(came).startswith("xx")


@pytest.mark.parametrize(
    "end", [{"cut": True}, {"end": True}, {"done": True}, {"raw": "data: {\n\n"}, {"raw": "data: \xff\n\n"}]
)
async def test_text_that_was_streamed_is_never_streamed_again(server: ModelServer, end: dict[str, Any]):
    """B63: (d) the connection breaks after three chunks, (e) no finish reason: an error, no second attempt."""
    server.says(steps({"text": "one "}, {"text": "two "}, {"text": "three"}, end), saying("another"))
    failed, came = await failure(server)

    assert failed.code is Code.UNAVAILABLE
    assert (text(came), len(server.requests)) == ("one two three", 1)


@pytest.mark.parametrize(
    "first",
    [
        {"cut": True},
        {"end": True},
        {"chunk": {"choices": 5}},
        {"chunk": 5},
        {"chunk": {"error": {"message": "overloaded"}}},
    ],
)
async def test_an_answer_that_broke_before_its_first_piece_is_asked_for_again(
    server: ModelServer, first: dict[str, Any]
):
    server.says(steps(first, {"end": True}), saying("Hello"))

    assert text(await deltas(server, idle=2.0)) == "Hello"


async def test_the_users_error_says_what_the_provider_wrote_into_the_stream(server: ModelServer):
    server.says(steps({"text": "Hel"}, {"chunk": {"error": {"message": "overloaded", "code": "x"}}}))
    failed, _ = await failure(server)

    assert "overloaded" in failed.message


@pytest.mark.parametrize(
    "rest", [{"cut": True}, {"stall": True}, {"end": True}, {"comments": 0.02}, {"raw": "data: {\n\n"}]
)
async def test_trouble_after_the_finish_reason_does_no_harm(server: ModelServer, rest: dict[str, Any]):
    server.says(steps({"text": "Hello"}, {"finish": "stop"}, rest))

    assert (await deltas(server))[-1] == Finished("stop", None)


async def test_odd_chunks_among_good_ones_are_passed_over(server: ModelServer):
    server.says(
        steps(
            {"chunk": {}},
            {"chunk": {"choices": []}},
            {"chunk": {"choices": [{"index": 0}]}},
            {"chunk": {"choices": [{"index": 0, "delta": None}]}},
            {"comment": "still here"},
            {"text": "Hello"},
            {"delta": {"content": None, "refusal": " no"}},
            {"finish": "stop"},
        )
    )

    assert text(await deltas(server)) == "Hello no"


async def test_leaving_closes_the_stream_at_once(server: ModelServer):
    """B63: cancel closes the HTTP stream; nothing keeps running at the provider."""
    server.says(steps({"text": "Hel"}, {"stall": True}))
    async with model(server, idle=60.0, total=60.0) as asked:
        async with contextlib.aclosing(asked.stream(HI, [])) as stream:
            assert await anext(stream) == TextDelta("Hel")
            assert server.state.open_streams == 1
        await eventually(lambda: server.state.open_streams == 0, timeout=0.25)

    assert server.state.left == 1


async def test_cancelling_closes_the_stream_at_once(server: ModelServer):
    server.says(steps({"stall": True}))
    async with model(server, idle=60.0, total=60.0) as asked:
        waiting = asyncio.ensure_future(anext(asked.stream(HI, [])))
        await eventually(lambda: server.state.open_streams == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await eventually(lambda: server.state.open_streams == 0, timeout=0.25)


async def test_a_slow_reader_is_not_the_models_silence(server: ModelServer):
    server.says(steps({"text": "one "}, {"text": "two"}))
    async with model(server) as asked:
        came = []
        async for delta in asked.stream(HI, []):
            came.append(delta)
            await asyncio.sleep(0.2)

    assert text(came) == "one two"


async def test_the_stand_in_says_that_it_is_none_and_calls_tools_on_request(server: ModelServer):
    tool = {"type": "function", "function": {"name": "calc__add", "parameters": {"type": "object"}}}
    ask = [{"role": "user", "content": 'call calc.add {"a": 1}'}]
    async with model(server) as asked:
        came = [delta async for delta in asked.stream(ask, [tool])]

    assert "not an AI" in text(came)
    assert came[-1] == Finished("tool_calls", came[-1].usage)  # type: ignore[union-attr]
    assert CallDelta(0, "call_1_0", "calc__add", "") in came
