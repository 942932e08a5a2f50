"""The daemon's MCP endpoint and its tunnel against `agentctl-wire.md` 2.12, 3.8 and 6.4: frames written by hand."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.support.daemon import Daemon, Instance
from tests.support.process import Process

pytestmark = pytest.mark.timeout(30)

PUSH = {
    "generation": "gen-1",
    "revision": 3,
    "tools": [
        {
            "plugin_id": "page",
            "plugin_display_name": "The page",
            "local_name": "title",
            "exposed_name": "page__title",
            "description": "The title of the page",
            "surfaces": ["kanban-task"],
            "input_schema": {"type": "object", "properties": {"upper": {"type": "boolean"}}},
            "output_schema": {"type": "object"},
            "read_only_hint": True,
            "destructive_hint": False,
            "idempotent_hint": True,
            "open_world_hint": False,
        }
    ],
}
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
QUESTION = {
    "context": "new project",
    "questions": [
        {
            "prompt": "Which DB?",
            "title": "DB",
            "options": [
                {"label": "Postgres", "description": "server"},
                {"label": "SQLite", "description": "file"},
            ],
        }
    ],
}


@pytest.fixture
async def running(started: tuple[Process, str]) -> AsyncIterator[Daemon]:
    async with Daemon(*started) as it:
        yield it


@pytest.fixture
async def instance(running: Daemon, tmp_path: Path) -> AsyncIterator[Instance]:
    async with running.instance(tmp_path, session_id="sess-41", task_id="task-7") as it:
        yield it


@asynccontextmanager
async def backend(instance: Instance) -> AsyncIterator[ClientConnection]:
    url = f"ws://127.0.0.1:{instance.port}/api/v1/agent/stream"
    async with connect(url, additional_headers=instance.headers, proxy=None) as socket:
        yield socket


async def heard(socket: ClientConnection, action: str) -> dict[str, Any]:
    """The next request of the daemon, which is this one; without its id and time, which are looked at here."""
    frame: dict[str, Any] = json.loads(await socket.recv())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z", frame.pop("timestamp"))
    assert isinstance(frame["id"], str)
    assert (frame.pop("type"), frame.pop("action")) == ("request", action)
    return frame


async def refuse_listing(socket: ClientConnection, surface: str = "kanban-task") -> None:
    frame = await heard(socket, "mcp.list_plugin_tools")
    assert frame["payload"] == {"surface": surface}
    error = {"code": "UNKNOWN_ACTION", "message": "not supported"}
    envelope = {"id": frame["id"], "type": "error", "action": "mcp.list_plugin_tools", "payload": error}
    await socket.send(json.dumps({**envelope, "timestamp": "2031-04-05T06:07:21Z"}))


class Agent:
    """An agent's MCP client, by hand: no token, streamable HTTP, the protocol of 2025-06-18."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self._session: dict[str, str] = {}
        self._id = 0

    def message(self, method: str, params: Any) -> dict[str, Any]:
        self._id += 1
        return {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}

    async def ask(self, method: str, params: Any) -> Any:
        """The result in the one event of the answer's stream."""
        answer = await self.http.post("/mcp", json=self.message(method, params), headers=self.headers)
        assert answer.status_code == 200, answer.text
        if method == "initialize":
            self._session = {"mcp-session-id": answer.headers["mcp-session-id"]}
        [data] = re.findall(r"^data: (.+)$", answer.text.replace("\r", ""), re.MULTILINE)
        return json.loads(data)["result"]

    @property
    def headers(self) -> dict[str, str]:
        return {**ACCEPT, **self._session}

    async def hello(self) -> Any:
        result = await self.ask(
            "initialize",
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "by hand", "version": "1"},
            },
        )
        message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await self.http.post("/mcp", json=message, headers=self.headers)).status_code == 202
        return result


@asynccontextmanager
async def agent(instance: Instance) -> AsyncIterator[Agent]:
    url = f"http://localhost:{instance.port}"
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as http:
        yield Agent(http)


async def test_the_agent_needs_no_token_and_finds_this_server(instance: Instance):
    async with agent(instance) as it:
        result = await it.hello()

        assert result["serverInfo"] == {"name": "kandev-mcp", "version": "1.0.0"}
        assert "tools" in result["capabilities"]


async def test_a_listing_asks_the_backend_and_shows_what_was_pushed(instance: Instance):
    async with backend(instance) as socket, agent(instance) as it:
        answer = await instance.http.put("/api/v1/mcp/plugin-tools", json=PUSH)
        assert (answer.status_code, answer.json()) == (200, {"generation": "gen-1", "revision": 3})
        await it.hello()
        asking = asyncio.create_task(it.ask("tools/list", {}))
        await refuse_listing(socket)
        own, plugin = (await asking)["tools"]

        assert own["name"] == "ask_user_question_kandev"
        assert plugin == {
            "name": "page__title",
            "description": "The title of the page",
            "inputSchema": {"type": "object", "properties": {"upper": {"type": "boolean"}}},
            "outputSchema": {"type": "object"},
            "annotations": {
                "title": "The page",
                "readOnlyHint": True,
                "destructiveHint": False,
                "idempotentHint": True,
                "openWorldHint": False,
            },
        }


async def test_a_call_is_this_frame_and_its_reply_this_result(instance: Instance):
    async with backend(instance) as socket, agent(instance) as it:
        await instance.http.put("/api/v1/mcp/plugin-tools", json=PUSH)
        await it.hello()
        params = {"name": "page__title", "arguments": {"upper": True}}
        calling = asyncio.create_task(it.ask("tools/call", params))
        frame = await heard(socket, "mcp.invoke_plugin_tool")
        assert re.fullmatch(r"[0-9a-f-]{36}", frame["payload"].pop("invocation_id"))
        assert frame["payload"] == {
            "plugin_id": "page",
            "local_name": "title",
            "arguments": {"upper": True},
            "surface": "kanban-task",
        }
        payload = {"text": "TITLE", "structured_content": {"title": "TITLE"}, "is_error": False}
        await socket.send(json.dumps({"id": frame["id"], "type": "response", "payload": payload}))

        assert await calling == {
            "content": [{"type": "text", "text": "TITLE"}],
            "structuredContent": {"title": "TITLE"},
            "isError": False,
        } | {name: value for name, value in calling.result().items() if name == "resultType"}

        calling = asyncio.create_task(it.ask("tools/call", params))
        frame = await heard(socket, "mcp.invoke_plugin_tool")
        failure = {"code": "NOT_FOUND", "message": "no such remote"}
        await socket.send(json.dumps({"id": frame["id"], "type": "error", "payload": failure}))
        result = await calling

        assert result["isError"] is True
        assert result["content"] == [{"type": "text", "text": "backend error [NOT_FOUND]: no such remote"}]


async def test_a_question_to_the_user_is_this_frame(instance: Instance):
    async with backend(instance) as socket, agent(instance) as it:
        await it.hello()
        params = {"name": "ask_user_question_kandev", "arguments": QUESTION}
        asking = asyncio.create_task(it.ask("tools/call", params))
        frame = await heard(socket, "mcp.ask_user_question")
        assert frame["payload"] == {
            "session_id": "sess-41",
            "questions": [
                {
                    "id": "q1",
                    "prompt": "Which DB?",
                    "title": "DB",
                    "options": [
                        {"label": "Postgres", "description": "server", "option_id": "q1_opt1"},
                        {"label": "SQLite", "description": "file", "option_id": "q1_opt2"},
                    ],
                }
            ],
            "context": "new project",
        }
        answers = {"answers": [{"question_id": "q1", "selected_options": ["q1_opt2"]}]}
        await socket.send(json.dumps({"id": frame["id"], "type": "response", "payload": answers}))

        [block] = (await asking)["content"]
        assert json.loads(block["text"])["answers"][0]["selected_labels"] == ["SQLite"]


async def test_an_agent_that_hangs_up_gives_its_question_up(instance: Instance):
    async with backend(instance) as socket, agent(instance) as it:
        await it.hello()
        message = it.message("tools/call", {"name": "ask_user_question_kandev", "arguments": QUESTION})
        async with it.http.stream("POST", "/mcp", json=message, headers=it.headers) as answer:
            assert answer.status_code == 200
            await heard(socket, "mcp.ask_user_question")

        frame = await heard(socket, "mcp.clarification_timeout")
        assert frame["payload"] == {"session_id": "sess-41"}


async def test_an_agent_that_cancels_gives_its_question_up(instance: Instance):
    async with backend(instance) as socket, agent(instance) as it:
        await it.hello()
        message = it.message("tools/call", {"name": "ask_user_question_kandev", "arguments": QUESTION})
        asking = asyncio.create_task(it.http.post("/mcp", json=message, headers=it.headers))
        await heard(socket, "mcp.ask_user_question")
        cancel = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": message["id"]},
        }
        assert (await it.http.post("/mcp", json=cancel, headers=it.headers)).status_code == 202

        await heard(socket, "mcp.clarification_timeout")
        assert (await asking).status_code == 200


async def test_the_older_transport_begins_with_where_to_post(instance: Instance):
    async with agent(instance) as it, it.http.stream("GET", "/sse", headers=ACCEPT) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.aiter_lines()
        assert await anext(lines) == "event: endpoint"
        where = (await anext(lines)).removeprefix("data: ")
        assert re.fullmatch(r"/message\?session_id=[0-9a-f]+", where)
        message = it.message(
            "initialize",
            {
                "protocolVersion": "2024-11-05",
                "capabilities": {},
                "clientInfo": {"name": "x", "version": "1"},
            },
        )
        assert (await it.http.post(where, json=message)).status_code == 202
        async for line in lines:
            if line.startswith("data: "):
                break

        assert json.loads(line.removeprefix("data: "))["result"]["serverInfo"]["name"] == "kandev-mcp"


async def test_the_mode_decides_on_the_surface(instance: Instance):
    async with backend(instance) as socket, agent(instance) as it:
        for mode, surface in (
            ("office", "office-task"),
            ("config", "configuration"),
            ("task-title-pending", "kanban-task"),
        ):
            answer = await instance.http.put("/api/v1/mcp/mode", json={"mode": mode})
            assert (answer.status_code, answer.json()) == (200, {"mode": mode})
            await it.hello()
            asking = asyncio.create_task(it.ask("tools/list", {}))
            await refuse_listing(socket, surface)
            await asking
            it._session = {}


async def test_an_instance_made_for_another_surface_says_so(running: Daemon, tmp_path: Path):
    profile = {"surface": "external", "capabilities": ["task-title"]}
    async with (
        running.instance(tmp_path, mcp_profile=profile) as instance,
        backend(instance) as socket,
        agent(instance) as it,
    ):
        await it.hello()
        asking = asyncio.create_task(it.ask("tools/list", {}))
        await refuse_listing(socket, "external")

        assert (await asking)["tools"] == [], "it may not ask the user either"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("mode", {}),
        ("mode", {"mode": "fast"}),
        ("mode", {"mode": 1}),
        ("providers", {"mcp_providers": "github"}),
        ("plugin-tools", []),
        ("plugin-tools", {"revision": "3"}),
        ("plugin-tools", {"tools": [{"plugin_id": "page"}]}),
    ],
)
async def test_a_wrong_configuration_is_refused(instance: Instance, path: str, body: Any):
    answer = await instance.http.put(f"/api/v1/mcp/{path}", json=body)

    assert answer.status_code == 400
    assert list(answer.json()) == ["error"]


async def test_providers_are_taken_note_of(instance: Instance):
    answer = await instance.http.put("/api/v1/mcp/providers", json={"mcp_providers": ["github"]})

    assert (answer.status_code, answer.json()) == (200, {"mcp_providers": ["github"]})


async def test_an_older_push_is_answered_with_what_holds(instance: Instance):
    await instance.http.put("/api/v1/mcp/plugin-tools", json=PUSH)
    answer = await instance.http.put("/api/v1/mcp/plugin-tools", json={**PUSH, "revision": 2})

    assert (answer.status_code, answer.json()) == (200, {"generation": "gen-1", "revision": 3})


async def test_configuring_needs_the_token(instance: Instance):
    async with agent(instance) as it:
        for path in ("mode", "providers", "plugin-tools"):
            assert (await it.http.put(f"/api/v1/mcp/{path}", json={})).status_code == 401


@pytest.mark.parametrize("header", [{"host": "rebound.example"}, {"origin": "http://evil.example"}])
@pytest.mark.parametrize(("method", "path"), [("POST", "/mcp"), ("GET", "/sse"), ("POST", "/message")])
async def test_a_web_page_cannot_reach_the_tools(
    instance: Instance, header: dict[str, str], method: str, path: str
):
    async with agent(instance) as it:
        answer = await it.http.request(method, path, headers={**ACCEPT, **header}, json={})

        assert answer.status_code == 403
