"""The MCP protocol around an instance's tools: the only module of the daemon that loads the `mcp` package.

Loading it takes most of a second, so it happens when an agent first comes, in a thread: see mcp_endpoint.py. What the
tools do is in mcp_tools.py.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
)
from starlette.types import Message, Receive, Scope, Send

from tieline_agentctl.mcp_tools import GONE, GivenUp, McpTools

log = structlog.get_logger()

NAME, VERSION = "kandev-mcp", "1.0.0"  # both are part of the wire
MESSAGES = "/message"
_MOST_SESSIONS = 64
_MOST_BODY = 16 * 1024 * 1024


class _Caller:
    """The request that a tool call came in."""

    def __init__(self, context: ServerRequestContext[Any, Any]) -> None:
        self._session = context.session
        self.gone: asyncio.Event | None = context.request.scope.get(GONE) if context.request else None

    async def progress(self, count: int) -> None:
        await self._session.report_progress(count, None, "waiting for the answer")


class McpServer:
    """Both transports over one set of tools. Serves inside `running()`."""

    def __init__(self, tools: McpTools) -> None:
        self._tools = tools
        self._server: Server[Any] = Server(
            NAME,
            version=VERSION,
            get_tool_input_schema=tools.input_schema,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        self._http = StreamableHTTPSessionManager(
            self._server, max_sessions=_MOST_SESSIONS, max_request_body_size=_MOST_BODY
        )
        self._sse = SseServerTransport(MESSAGES, max_request_body_size=_MOST_BODY)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._http.run():
            yield

    async def streamable(self, scope: Scope, receive: Receive, send: Send) -> None:
        answered = False

        async def noted(message: Message) -> None:
            nonlocal answered
            answered = answered or (message["type"] == "http.response.body" and not message.get("more_body"))
            await send(message)

        try:
            await self._http.handle_request(scope, receive, noted)
        except RuntimeError as error:
            # The package tries to answer twice when a session is ended while it takes in a notification of it.
            if not answered:
                raise
            log.debug("an MCP session ended under a notification", error=str(error))

    async def sse(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._sse.connect_sse(scope, receive, send) as (incoming, outgoing):
            await self._server.run(incoming, outgoing, self._server.create_initialization_options())

    async def message(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._sse.handle_post_message(scope, receive, send)

    async def _list(
        self, context: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult.model_validate({"tools": await self._tools.listed()})

    async def _call(
        self, context: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult:
        try:
            result = await self._tools.called(params.name, params.arguments or {}, _Caller(context))
        except GivenUp:
            result = {"content": [], "isError": True}  # nobody reads it
        return CallToolResult.model_validate(result)
