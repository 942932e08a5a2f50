"""Where the agent finds its tools: `/mcp`, `/sse` and `/message` of an instance, and the routes that configure them.

The protocol itself is in mcp_server.py, which is loaded when somebody first comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from pydantic import Field
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from tieline_agentctl import mcp_access
from tieline_agentctl.instance import Instance
from tieline_agentctl.mcp_catalogue import SURFACES, BadTools, snapshot
from tieline_agentctl.mcp_tools import GONE, McpTools
from tieline_agentctl.web import Args, BadRequest, ExactRoute, answer, arguments, failure, raw_body, route

if TYPE_CHECKING:
    from tieline_agentctl.mcp_server import McpServer


class Mode(Args):
    mode: str = ""


class Providers(Args):
    mcp_providers: list[str] = Field(default_factory=list)


class McpEndpoint:
    """One instance's endpoint. It starts with the first request and ends with the instance's tasks."""

    def __init__(self, instance: Instance) -> None:
        self._tasks = instance.tasks
        create = instance.create
        self._tools = McpTools(
            instance.agent.mcp_request,
            instance.tasks,
            session_id=create.session_id,
            mode=create.mcp_mode,
            profile=create.mcp_profile,
            disable_ask_question=create.disable_ask_question,
        )
        self._server: asyncio.Future[McpServer] | None = None

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/mcp", _LocalOnly(self._streamable)),
            ExactRoute("/sse", _LocalOnly(self._sse), methods=["GET"]),
            ExactRoute("/message", _LocalOnly(self._message), methods=["POST"]),
            route("PUT", "/api/v1/mcp/mode", self.mode),
            route("PUT", "/api/v1/mcp/providers", self.providers),
            route("PUT", "/api/v1/mcp/plugin-tools", self.plugin_tools),
        ]

    # configuration

    async def mode(self, request: Request) -> Response:
        wanted = (await arguments(request, Mode)).mode
        if wanted not in SURFACES:
            raise BadRequest(f"mode must be one of {', '.join(SURFACES)}")
        self._tools.surface = SURFACES[wanted]
        return answer({"mode": wanted})

    async def providers(self, request: Request) -> Response:
        """Taken note of and no more: the tools that they switch on in the field are not offered here."""
        return answer({"mcp_providers": (await arguments(request, Providers)).mcp_providers})

    async def plugin_tools(self, request: Request) -> Response:
        try:
            held = self._tools.catalogue.push(snapshot(await raw_body(request)))
        except BadTools as error:
            raise BadRequest(f"invalid request: {error}") from error
        return answer({"generation": held.generation, "revision": held.revision})

    # the protocol

    async def _streamable(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.Event()

        async def watched() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect":
                # No stream is resumed here, so what was asked on this one can reach nobody any more.
                gone.set()
            return message

        await (await self._started()).streamable({**scope, GONE: gone}, watched, send)

    async def _sse(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (await self._started()).sse(scope, receive, send)

    async def _message(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (await self._started()).message(scope, receive, send)

    async def _started(self) -> McpServer:
        if self._server is None:
            self._server = asyncio.get_running_loop().create_future()
            self._tasks.spawn(self._serve(self._server), "MCP server")
        return await asyncio.shield(self._server)

    async def _serve(self, started: asyncio.Future[McpServer]) -> None:
        try:
            server = (await asyncio.to_thread(_loaded))(self._tools)
            async with server.running():
                started.set_result(server)
                await asyncio.Event().wait()
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)
        finally:
            started.cancel()


def _loaded() -> type[McpServer]:
    from tieline_agentctl.mcp_server import McpServer

    return McpServer


class _LocalOnly:
    """An ASGI application in front of another; see mcp_access.py."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        peer = (scope.get("client") or ("",))[0]
        refused = mcp_access.refusal(peer, headers.get("host", ""), headers.get("origin", ""))
        if refused:
            await failure(refused, 403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)
