"""One trace, from a frontend's frame through every process to the model, the daemon and the remote: the whole system as
processes, and a collector that decodes what they send."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from websockets.asyncio.client import connect

from tests.support.eventually import eventually
from tests.support.gateway import Raw, _quietly
from tests.support.model import ModelServer, model_server
from tests.support.otlp import Collector, Span, collector
from tests.support.raw_remote import ECHO, told
from tests.support.system import System

pytestmark = [pytest.mark.timeout(60), pytest.mark.asyncio(loop_scope="module")]

SECRET = "what-nobody-else-may-read"
SPAN = "b7ad6b7169203331"


@dataclass
class Stack:
    system: System
    collector: Collector
    model: ModelServer


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """The whole system, told where to send its spans, and a model of the test's own."""
    with collector() as found:
        async with model_server() as model:
            env = {**found.environment, "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": model.url}
            async with System(tmp_path_factory.mktemp("traced"), env=env) as system:
                yield Stack(system, found, model)


@contextlib.asynccontextmanager
async def frontend(stack: Stack) -> AsyncIterator[Raw]:
    async with connect(stack.system.url, compression=None, proxy=None) as socket:
        raw = Raw(socket)
        reader = asyncio.create_task(_quietly(raw), name="raw frontend")
        try:
            await raw.ask("auth", {"token": stack.system.token()})
            yield raw
        finally:
            reader.cancel()
            await asyncio.wait([reader])


@contextlib.asynccontextmanager
async def echoing(front: Raw, name: str) -> AsyncIterator[list[dict[str, Any]]]:
    """A remote that answers every call with its argument; yields the frames as they came."""
    wanted = {"remotename": name, "functions": [ECHO]}
    assert (await front.ask("remote-connect", wanted))["type"] == "response"
    came: list[dict[str, Any]] = []

    async def answer() -> None:
        while True:
            frames = [frame for frame in front.frames if frame.get("action") == "remote-call"]
            for frame in frames[len(came) :]:
                came.append(frame)
                payload = {
                    "requestId": frame["payload"]["requestId"],
                    "result": frame["payload"]["args"]["value"],
                }
                await front.send(type="notification", action="remote-call-result", payload=payload)
            heard = len(front.frames)
            await front.until(lambda heard=heard: len(front.frames) > heard, timeout=60)

    task = asyncio.create_task(answer(), name="echo")
    try:
        yield came
    finally:
        task.cancel()
        await asyncio.wait([task])


async def asked(front: Raw, trace: str, action: str, payload: dict[str, Any]) -> dict[str, Any]:
    """A request with a traceparent, and its answer's payload."""
    id = f"{action}-{trace}"
    metadata = {"traceparent": f"00-{trace}-{SPAN}-01"}
    await front.send(id=id, action=action, payload=payload, metadata=metadata)
    answer = await front.answer_to(id, timeout=30)
    assert answer["type"] == "response", answer
    return dict(answer["payload"])


async def spans(stack: Stack, trace: str, *names: str) -> list[Span]:
    """The spans of a trace, once those with these names are there and nothing hangs in the air."""

    def found() -> list[Span]:
        came = stack.collector.of(trace)
        known = {span.id for span in came} | {SPAN}
        whole = set(names) <= {span.name for span in came} and all(span.parent in known for span in came)
        return came if whole else []

    return list(await eventually(found, 20))


def path(found: list[Span], last: Span) -> list[tuple[str, str]]:
    """From the frontend's span to this one: service and name."""
    by_id = {span.id: span for span in found}
    way = [last]
    while way[0].parent != SPAN:
        assert way[0].parent in by_id, f"{way[0].name} hangs in the air: {way[0]}"
        way.insert(0, by_id[way[0].parent])
    return [(span.service.removeprefix("tieline-"), span.name) for span in way]


def only(found: list[Span], name: str, service: str = "") -> Span:
    [span] = [span for span in found if span.name == name and service in span.service]
    return span


async def test_a_chat_is_one_trace_from_the_frame_to_the_model_and_the_remote(stack: Stack) -> None:
    trace = "1" * 32
    async with frontend(stack) as owner, frontend(stack) as front, echoing(owner, "browser") as came:
        thread = (await asked(front, "9" * 32, "thread.create", {"title": "a chat"}))["thread_id"]
        await front.ask("thread.subscribe", {"thread_id": thread})
        message = {
            "thread_id": thread,
            "content": f'call browser.echo {{"value": "{SECRET}"}}',
            "resources": [{"kind": "system", "subkind": "remote", "content": "browser"}],
        }
        answer = await asked(front, trace, "thread.message", message)
        found = await spans(stack, trace, "invoke_agent expert", "remote-call")

    run = only(found, "invoke_agent expert")
    chats = [span for span in found if span.name.startswith("chat ")]
    tool = only(found, "execute_tool browser__echo")
    call = only(found, "remote-call", "remotes")
    assert {span.service for span in found} == {"tieline-gateway", "tieline-agent", "tieline-remotes"}
    assert path(found, call) == [
        ("gateway", "thread.message"),
        ("agent", "agent.message"),
        ("agent", "thread.message"),
        ("agent", "invoke_agent expert"),
        ("agent", "execute_tool browser__echo"),
        ("remotes", "remote-call"),
    ]
    assert all(path(found, span) for span in found)
    assert len(chats) == 2
    assert all(path(found, span)[-2] == ("agent", "invoke_agent expert") for span in chats)

    # The remote, the model and the log hear of it too.
    [frame] = came
    assert frame["metadata"]["traceparent"] == f"00-{trace}-{call.id}-01"
    sent = [headers.get("traceparent") for headers in stack.model.state.headers]
    assert sent[-2:] == [f"00-{trace}-{span.id}-01" for span in chats]

    assert run.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert run.attributes["gen_ai.conversation.id"] == thread
    assert run.attributes["tieline.run.id"] == answer["run_id"]
    assert run.attributes["tieline.run.reason"] == "answer"
    assert (run.kind, chats[0].kind, tool.kind, call.kind) == ("internal", "client", "internal", "server")
    assert chats[0].attributes["gen_ai.operation.name"] == "chat"
    assert chats[0].attributes["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert chats[0].attributes["gen_ai.usage.input_tokens"] > 0
    assert chats[0].attributes["server.address"] == "127.0.0.1"
    assert tool.attributes["gen_ai.tool.name"] == "browser__echo"
    assert (tool.attributes["tieline.remote.name"], tool.attributes["tieline.remote.function"]) == (
        "browser",
        "echo",
    )
    assert not any(span.error for span in found)
    assert all(span.began <= span.ended for span in found)


async def test_a_coding_agents_call_belongs_to_the_prompt_that_it_works_on(stack: Stack) -> None:
    opening, trace = "2" * 32, "3" * 32
    async with frontend(stack) as owner, frontend(stack) as front, echoing(owner, "box") as came:
        wanted = {"workspace": "traced", "remotes": ["box", "not-there"]}
        session = (await asked(front, opening, "session.open", wanted))["session_id"]
        await front.ask("session.subscribe", {"session_id": session})
        text = f'tool box__echo {{"value": "{SECRET}"}}'
        await asked(front, trace, "agent.prompt", {"session_id": session, "text": text})
        found = await spans(
            stack, trace, "execute_tool echo", "remote-call", "agentctl agent.prompt", "invoke_agent"
        )
        opened = await spans(stack, opening, "agentctl agent.session.new", "session.open")
        await asked(front, "4" * 32, "session.close", {"session_id": session})

    assert path(found, only(found, "agentctl agent.prompt")) == [
        ("gateway", "agent.prompt"),
        ("streams", "agent.prompt"),
        ("streams", "agentctl agent.prompt"),
    ]
    call, worked = only(found, "remote-call"), only(found, "invoke_agent")
    assert path(found, call) == [
        ("gateway", "agent.prompt"),
        ("streams", "agent.prompt"),
        ("streams", "agentctl agent.prompt"),
        ("agentctl", "agent.prompt"),
        ("agentctl", "invoke_agent"),
        ("streams", "execute_tool echo"),
        ("remotes", "remote-call"),
    ]
    assert worked.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert worked.attributes["gen_ai.response.finish_reasons"] == ["end_turn"]
    assert worked.ended > call.ended  # as long as the agent works, not only until it has the prompt
    [frame] = came
    assert frame["metadata"]["traceparent"] == f"00-{trace}-{call.id}-01"
    # What it takes to open a session is told too, and ends with it.
    names = [name for _, name in path(opened, only(opened, "agentctl agent.session.new"))]
    assert names == ["session.open", "streams.open", "agentctl agent.session.new"]
    assert {"agentctl configure", "agentctl start"} <= {span.name for span in opened}
    daemon = {span.name for span in opened if span.service == "tieline-agentctl"}
    assert {"POST /api/v1/start", "agent.session.new"} <= daemon
    assert {span.kind for span in opened if span.name.startswith("agentctl ")} == {"client"}


async def test_a_frontends_own_call_is_one_trace_and_a_failed_one_says_how_it_failed(stack: Stack) -> None:
    trace, failing = "5" * 32, "6" * 32
    async with frontend(stack) as owner, frontend(stack) as front, echoing(owner, "desk"):
        payload = {"remotename": "desk", "function": "echo", "args": {"value": 1}}
        request_id = (await asked(front, trace, "remote-call", payload))["requestId"]
        ends = await front.until(lambda: told(front, "remote-call-result"))
        assert [(end["requestId"], end["result"]) for end in ends] == [(request_id, 1)]
        metadata = {"traceparent": f"00-{failing}-{SPAN}-01"}
        await front.send(
            id="no", action="remote-call", payload={**payload, "args": {"valu": SECRET}}, metadata=metadata
        )
        assert (await front.answer_to("no"))["payload"]["code"] == "invalid_arguments"
        found = await spans(stack, trace, "remote-call")
        found = await eventually(lambda: len(stack.collector.of(trace)) == 2 and stack.collector.of(trace))
        [failed] = await spans(stack, failing, "remote-call")

    assert path(found, only(found, "remote-call", "remotes")) == [
        ("gateway", "remote-call"),
        ("remotes", "remote-call"),
    ]
    assert failed.error
    assert failed.attributes["error.type"] == "invalid_arguments"


async def test_nothing_that_anybody_said_is_in_any_span(stack: Stack) -> None:
    """The tests before this one have said it in prompts, arguments, results and errors."""
    assert stack.collector.spans
    assert SECRET.encode() not in stack.collector.raw
    assert not any(
        "content" in name or "messages" in name for span in stack.collector.spans for name in span.attributes
    )


async def test_log_lines_of_a_session_say_whose_it_is(stack: Stack) -> None:
    log = stack.system.data / "logs" / "streams.log"
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    missing = [line for line in lines if line["event"] == "remotes of a session are not connected"]

    assert all(line["service"] == "streams" for line in lines)
    assert missing
    assert all(line["user"] == "dev" and len(line["session"]) > 8 for line in missing)
    assert SECRET not in log.read_text()
