"""An agent calls its user's functions over MCP: the real daemon, the real example agent, a backend that answers."""

import asyncio
import json
import shlex
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent
from starlette.routing import Route, Router
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope
from tieline_agentctl.mcp_server import McpServer
from tieline_agentctl.mcp_tools import McpTools
from tieline_agentctl.scope import Scope
from tieline_agentctl.serving import bind, serving

from tests.support.daemon import Daemon, Instance
from tests.support.eventually import eventually
from tests.support.mcp_backend import McpBackend, mcp_backend, plugin_tool
from tests.support.process import Process

AGENT = f"{shlex.quote(sys.executable)} -m tieline_agentctl.example_agent"
QUESTION = {
    "questions": [{"prompt": "Which DB?", "options": [{"label": "Postgres"}, {"label": "SQLite"}]}],
    "context": "new project",
}
pytestmark = pytest.mark.timeout(40)


@pytest.fixture
async def running(started: tuple[Process, str]) -> AsyncIterator[Daemon]:
    async with Daemon(*started) as it:
        yield it


@pytest.fixture
async def instance(running: Daemon, tmp_path: Path) -> AsyncIterator[Instance]:
    env = {"TIELINE_EXAMPLE_AGENT_STATE": str(tmp_path / "state")}
    async with running.instance(
        tmp_path, session_id="sess-41", agent_command=AGENT, env=env, requires_process_kill=True
    ) as it:
        yield it


MODERN = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "page__title",
}


def modern(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """A request of the protocol that has no sessions."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}


def client(instance: Instance, mode: Any = "legacy") -> Client:
    return Client(f"http://localhost:{instance.port}/mcp", mode=mode)


def said(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


@asynccontextmanager
async def session(instance: Instance, *tools: str, **answers: Any) -> AsyncIterator[McpBackend]:
    """The example agent in a session that has our endpoint."""
    assert (await instance.post("/api/v1/start")).status_code == 200
    async with mcp_backend(instance, *tools, **answers) as backend:
        await backend.backend.opened()
        backend._seen = 0
        yield backend


async def test_the_example_agent_calls_a_function_of_its_user(instance: Instance):
    reply = {"text": "THE TITLE\nof the page", "structured_content": {"title": "x"}, "is_error": False}
    async with session(instance, "page__title", invoke_plugin_tool=reply) as backend:
        await backend.backend.prompt('tool page__title {"upper": true}')
        asked = await backend.until_asked("mcp.invoke_plugin_tool")
        await backend.backend.until("complete")

    assert asked.pop("invocation_id")
    assert asked == {
        "plugin_id": "page",
        "local_name": "title",
        "arguments": {"upper": True},
        "surface": "kanban-task",
    }
    [call] = backend.backend.of("tool_call")
    assert (call["tool_name"], call["tool_title"]) == ("other", "page__title")
    assert call["normalized"]["generic"] == {"name": "page__title", "input": {"upper": True}}
    ended = backend.backend.of("tool_update")[-1]
    assert ended["tool_status"] == "complete"
    assert ended["normalized"]["generic"]["output"] == reply["text"]
    assert backend.backend.text == reply["text"]


async def test_the_example_agent_says_which_tools_it_has(instance: Instance):
    async with session(instance, "page__title", "page__scroll") as backend:
        await backend.backend.prompt("tools")
        await backend.backend.until("complete")

        assert backend.backend.text.split() == ["ask_user_question_kandev", "page__title", "page__scroll"]


async def test_a_function_that_fails_is_a_text_and_the_turn_goes_on(instance: Instance):
    replies = iter([{"text": "no such page", "is_error": True}, Exception("NOT_FOUND")])
    async with session(instance, "page__title", invoke_plugin_tool=lambda _: next(replies)) as backend:
        await backend.backend.prompt(
            "tool page__title\nsay |\ntool page__title {}\nsay |\ntool unknown\nsay |end"
        )
        await backend.backend.until("complete")

        first, second, third, end = backend.backend.text.split("|")
        assert first == "no such page"
        assert second == "backend error [NOT_FOUND]: not supported"
        assert third == "unknown failed: no server has a tool unknown"
        assert end == "end"
        ends = [one["tool_status"] for one in backend.backend.of("tool_update")]
        assert ends.count("error") == 3


async def test_the_user_answers_a_question_of_the_agent(instance: Instance):
    async with session(instance, ask_user_question=None) as backend:
        await backend.backend.prompt(f"tool ask_user_question_kandev {json.dumps(QUESTION)}")
        asked = await backend.until_asked("mcp.ask_user_question")
        assert asked["session_id"] == "sess-41"
        assert asked["context"] == "new project"
        [question] = asked["questions"]
        answer = {"question_id": question["id"], "selected_options": [question["options"][1]["option_id"]]}
        await backend.reply(backend.asked("mcp.ask_user_question")[0], {"answers": [answer]})
        await backend.backend.until("complete")

        [told] = json.loads(backend.backend.text)["answers"]
        assert (told["question"], told["selected_labels"]) == ("Which DB?", ["SQLite"])


async def test_a_cancelled_turn_takes_its_question_back(instance: Instance):
    async with session(instance, ask_user_question=None, clarification_timeout={}) as backend:
        await backend.backend.prompt(f"tool ask_user_question_kandev {json.dumps(QUESTION)}")
        await backend.until_asked("mcp.ask_user_question")
        assert (await backend.backend.ask("agent.cancel"))["payload"] == {"success": True}

        assert await backend.until_asked("mcp.clarification_timeout") == {"session_id": "sess-41"}
        ended = await backend.backend.until("complete")
        assert ended["data"]["stop_reason"] == "cancelled"


async def test_a_new_session_ends_the_calls_of_the_old_one(instance: Instance):
    async with session(instance, "page__title", invoke_plugin_tool=None) as backend, client(instance) as mcp:
        calling = asyncio.create_task(mcp.call_tool("page__title", {}))
        await backend.until_asked("mcp.invoke_plugin_tool")
        await backend.backend.do("agent.session.new", {"cwd": "", "mcp_servers": []})

        result = await calling
        assert result.is_error
        assert said(result) == "backend error: session reset"


@pytest.mark.parametrize("transport", ["streamable", "streamable modern", "sse"])
async def test_every_transport_lists_and_calls(instance: Instance, transport: str):
    async with mcp_backend(instance, "page__title"):
        opened = {
            "streamable": lambda: client(instance),
            "streamable modern": lambda: client(instance, "auto"),
            "sse": lambda: Client(sse_client(f"http://localhost:{instance.port}/sse"), mode="legacy"),
        }[transport]()
        async with opened as mcp:
            told = mcp.server_info
            assert told is not None
            assert (told.name, told.version) == ("kandev-mcp", "1.0.0")
            assert await names(mcp) == ["ask_user_question_kandev", "page__title"]
            assert said(await mcp.call_tool("page__title", {"upper": True})) == "done"
            assert said(await mcp.call_tool("nothing", {})) == "unknown tool: nothing"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_call_that_is_cancelled_is_freed(instance: Instance, mode: str):
    """What shows it: the user's question is taken back."""
    answers: dict[str, Any] = {"ask_user_question": None, "clarification_timeout": {}}
    async with mcp_backend(instance, **answers) as backend, client(instance, mode) as mcp:
        calling = asyncio.create_task(mcp.call_tool("ask_user_question_kandev", QUESTION))
        await backend.until_asked("mcp.ask_user_question")
        calling.cancel()

        await backend.until_asked("mcp.clarification_timeout")
        assert await names(mcp) == ["ask_user_question_kandev"]


async def test_a_call_that_was_given_up_before_a_backend_came_never_runs(instance: Instance):
    tools = {"generation": "g1", "revision": 1, "tools": [plugin_tool("page__title")]}
    assert (await instance.http.put("/api/v1/mcp/plugin-tools", json=tools)).status_code == 200
    async with client(instance) as mcp:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await mcp.call_tool("page__title", {"upper": True})
        await names(mcp)  # nor does a listing that nobody answered
        async with mcp_backend(instance, "page__title") as backend:
            await names(mcp)

            assert [frame["action"] for frame in backend.backend.frames] == ["mcp.list_plugin_tools"]


async def test_a_backend_that_does_not_answer_delays_a_listing_by_two_seconds(instance: Instance):
    tools = {"generation": "g1", "revision": 1, "tools": [plugin_tool("page__title")]}
    assert (await instance.http.put("/api/v1/mcp/plugin-tools", json=tools)).status_code == 200
    async with mcp_backend(instance, list_plugin_tools=None), client(instance) as mcp:
        began = time.monotonic()
        assert await names(mcp) == ["ask_user_question_kandev", "page__title"]

        assert 1.5 < time.monotonic() - began < 4


async def test_an_answer_takes_tools_away_that_were_pushed(instance: Instance):
    tools = {"generation": "g1", "revision": 1, "tools": [plugin_tool("page__a"), plugin_tool("page__b")]}
    await instance.http.put("/api/v1/mcp/plugin-tools", json=tools)
    answer = {"generation": "g1", "revision": 2, "tools": [plugin_tool("page__b")]}
    async with mcp_backend(instance, list_plugin_tools=answer), client(instance) as mcp:
        assert await names(mcp) == ["ask_user_question_kandev", "page__b"]


async def test_each_instance_has_its_own_tools(running: Daemon, instance: Instance, tmp_path: Path):
    async with (
        running.instance(tmp_path, disable_ask_question=True) as other,
        mcp_backend(instance, "page__title") as mine,
        mcp_backend(other, "desk__title") as theirs,
        client(instance) as mcp,
        client(other) as other_mcp,
    ):
        assert await names(mcp) == ["ask_user_question_kandev", "page__title"]
        assert await names(other_mcp) == ["desk__title"], "and no questions, as it was created"
        assert (await mcp.call_tool("desk__title", {})).is_error
        assert said(await other_mcp.call_tool("desk__title", {})) == "done"
        assert not mine.asked("mcp.invoke_plugin_tool")
        assert len(theirs.asked("mcp.invoke_plugin_tool")) == 1


async def test_calls_run_side_by_side_and_large_results_arrive_whole(instance: Instance):
    large = "0123456789abcdef" * (5 * 1024 * 1024 // 16)
    # By itself this client takes no more than 1 MiB.
    transport = streamable_http_client(f"http://localhost:{instance.port}/mcp", max_sse_event_size=None)
    async with (
        mcp_backend(instance, "page__title", invoke_plugin_tool=None) as backend,
        Client(transport, mode="legacy") as mcp,
    ):
        calls = [asyncio.create_task(mcp.call_tool("page__title", {"n": n})) for n in range(10)]
        await backend.until_asked("mcp.invoke_plugin_tool", 10)
        for frame in reversed(backend.asked("mcp.invoke_plugin_tool")):
            number = frame["payload"]["arguments"]["n"]
            await backend.reply(frame, {"text": large if number == 3 else str(number)})

        results = [said(await call) for call in calls]
        assert results.pop(3) == large
        assert results == ["0", "1", "2", "4", "5", "6", "7", "8", "9"]


async def test_an_instance_with_a_call_under_way_is_deleted_at_once(running: Daemon, tmp_path: Path):
    async with (
        running.instance(tmp_path) as instance,
        mcp_backend(instance, "page__title", invoke_plugin_tool=None) as backend,
        httpx.AsyncClient(base_url=instance.url, trust_env=False, timeout=20) as http,
    ):
        call = {"name": "page__title", "arguments": {}}
        calling = asyncio.create_task(http.post("/mcp", json=modern("tools/call", call), headers=MODERN))
        await backend.until_asked("mcp.invoke_plugin_tool")
        began = time.monotonic()
        assert (await running.http.delete(f"/api/v1/instances/{instance.id}")).status_code == 200

        assert time.monotonic() - began < 3
        [block] = (await calling).json()["result"]["content"]
        assert block["text"] == "backend error: agent stopped"


async def test_whoever_waits_for_an_answer_is_told_that_it_is_still_awaited(tmp_path: Path):
    """The real interval is 20 s; here it is shorter."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def ask(action: str, payload: Any) -> Any:
        return await answer if action == "mcp.ask_user_question" else {}

    tasks = Scope()
    server = McpServer(McpTools(ask, tasks, keep_alive=0.05))
    heard: list[float] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    app = Router([Route("/mcp", _Streamable(server))])
    sock = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
    async with server.running(), serving(app, sock), Client(url, mode="legacy") as mcp:
        calling = asyncio.create_task(
            mcp.call_tool("ask_user_question_kandev", QUESTION, progress_callback=progressed)
        )
        await eventually(lambda: len(heard) >= 3)
        answer.set_result({"rejected": True})
        assert json.loads(said(await calling)) == {"rejected": True}
    await tasks.close()

    assert heard == sorted(set(heard))


class _Streamable:
    def __init__(self, server: McpServer) -> None:
        self._server = server

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await self._server.streamable(scope, receive, send)
