"""External remotes over real HTTP: an address that is posted to, and an MCP server."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from tieline_protocol.errors import Code, Refused
from tieline_protocol.remotes import External
from tieline_remotes.addresses import networks
from tieline_remotes.external import Externals

from tests.support.eventually import eventually

LOOPBACK = networks("127.0.0.0/8")


@contextlib.asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None))
    task = asyncio.create_task(server.serve())
    try:
        await eventually(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        await asyncio.wait([task])


async def answer(request: Request) -> Response:
    asked = await request.json()
    match asked["function"]:
        case "echo":
            return JSONResponse(asked["args"]["value"])
        case "fail":
            return JSONResponse({"error": "no such city"}, 422)
        case "moved":
            return RedirectResponse("/elsewhere", 307)
        case "stuck":
            request.app.state.stuck.set()
            while not await request.is_disconnected():
                await asyncio.sleep(0.01)
            request.app.state.left.set()
            return Response()
        case "host":
            return JSONResponse(request.headers["host"])
        case "large":
            return Response(b'"' + b"x" * 6_000_000 + b'"')
        case _:
            return Response("not json")


@pytest.fixture
def app() -> Starlette:
    app = Starlette(routes=[Route("/rpc", answer, methods=["POST"])])
    app.state.stuck, app.state.left = asyncio.Event(), asyncio.Event()
    return app


@pytest.fixture
async def url(app: Starlette) -> AsyncIterator[str]:
    async with serving(app) as base:
        yield f"{base}/rpc"


@pytest.fixture
async def externals() -> AsyncIterator[Externals]:
    async with Externals(LOOPBACK) as made:
        yield made


async def silent(_: dict[str, Any]) -> None:
    """Nobody hears the progress."""


@pytest.mark.parametrize("value", [None, 0, "", [], {"a": "ü"}])
async def test_an_http_remote_answers_with_json(externals: Externals, url: str, value: Any) -> None:
    raw = await externals.call(External(kind="http", url=url), "r-1", "echo", {"value": value}, silent)

    assert JSONResponse(value).body == raw


@pytest.mark.parametrize(
    ("function", "code", "text"),
    [
        ("fail", Code.INTERNAL, "no such city"),
        ("moved", Code.INTERNAL, "307"),
        ("large", Code.TOO_LARGE, "5,000,000"),
        ("nonsense", Code.INTERNAL, "not valid JSON"),
    ],
)
async def test_what_goes_wrong_is_the_end_of_that_call(
    externals: Externals, url: str, function: str, code: Code, text: str
) -> None:
    with pytest.raises(Refused, match=text) as caught:
        await externals.call(External(kind="http", url=url), "r-1", function, {}, silent)

    assert caught.value.code == code


async def test_our_own_network_is_not_reached_unless_an_operator_allows_it(url: str) -> None:
    async with Externals(()) as strict:
        with pytest.raises(Refused, match="may not reach"):
            await strict.call(External(kind="http", url=url), "r-1", "echo", {"value": 1}, silent)


async def test_an_address_where_nobody_listens_is_unavailable(externals: Externals) -> None:
    with pytest.raises(Refused) as caught:
        await externals.call(External(kind="http", url="http://127.0.0.1:9/"), "r-1", "echo", {}, silent)

    assert caught.value.code == Code.UNAVAILABLE


async def test_a_call_that_nobody_waits_for_any_more_hangs_up(
    externals: Externals, app: Starlette, url: str
) -> None:
    work = externals.call(External(kind="http", url=url), "r-1", "stuck", {}, silent)
    call = asyncio.create_task(work)
    await asyncio.wait_for(app.state.stuck.wait(), 5)
    call.cancel()

    await asyncio.wait_for(app.state.left.wait(), 2)


async def test_a_name_is_resolved_once_and_what_was_checked_is_what_is_dialled(
    externals: Externals, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the name says a moment later: the second answer would be an address of somebody else's."""
    asked: list[str] = []

    async def resolve(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        address = "127.0.0.1" if len(asked) == 1 else "192.0.2.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    named = External(kind="http", url=url.replace("127.0.0.1", "tools.example"))
    raw = await externals.call(named, "r-1", "host", {}, silent)

    assert asked == ["tools.example"]
    assert raw == JSONResponse(named.url.split("/")[2]).body


class Waiting:
    """What a tool of the MCP server went through."""

    def __init__(self) -> None:
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


@pytest.fixture
async def mcp(waiting: Waiting) -> AsyncIterator[External]:
    server = MCPServer("weather")

    @server.tool()
    async def wait() -> str:
        """Never answers."""
        waiting.begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            waiting.cancelled.set()
            raise
        return "late"

    @server.tool()
    async def forecast(city: str, ctx: Context) -> str:
        """The weather to come."""
        await ctx.report_progress(1, 2)
        return f"sun in {city}"

    @server.tool()
    def fail() -> str:
        raise ValueError("no sky today")

    async with serving(server.streamable_http_app()) as base:
        yield External(kind="mcp", url=f"{base}/mcp")


async def test_the_tools_of_an_mcp_server_become_functions(externals: Externals, mcp: External) -> None:
    functions = await externals.connect(mcp, [])

    assert {one["name"] for one in functions} == {"forecast", "fail", "wait"}
    assert functions[0]["parameters"]["type"] == "object"
    assert [one["name"] for one in await externals.connect(mcp, [{"name": "fail"}])] == ["fail"]


async def test_an_mcp_tool_is_called_and_tells_its_progress(externals: Externals, mcp: External) -> None:
    heard: list[dict[str, Any]] = []

    async def hear(told: dict[str, Any]) -> None:
        heard.append(told)

    raw = await externals.call(mcp, "r-1", "forecast", {"city": "Paris"}, hear)

    assert b"sun in Paris" in raw
    assert heard == [{"progress": 1, "total": 2}]


async def test_an_mcp_tool_is_cancelled_when_nobody_waits_any_more(
    externals: Externals, mcp: External, waiting: Waiting
) -> None:
    call = asyncio.create_task(externals.call(mcp, "r-1", "wait", {}, silent))
    await asyncio.wait_for(waiting.begun.wait(), 5)
    call.cancel()

    await asyncio.wait_for(waiting.cancelled.wait(), 2)
    await asyncio.wait([call])


async def test_an_mcp_tool_that_fails_is_an_error_of_that_call(externals: Externals, mcp: External) -> None:
    with pytest.raises(Refused, match="Error executing tool fail"):
        await externals.call(mcp, "r-1", "fail", {}, silent)
