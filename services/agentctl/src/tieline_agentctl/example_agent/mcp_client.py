"""The MCP servers that a session was given, used: which tools there are, and one call.

Every use is a connection of its own. The only module of the example agent that loads the `mcp` package.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent

_CONNECT = 5.0
_MOST_PAGES = 100


class ToolFailed(Exception):
    """The servers cannot be used, or none has such a tool. The text is for the user."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool gave, as text."""

    text: str
    is_error: bool


async def names(servers: Sequence[Any]) -> list[str]:
    """The names of all tools of all servers, in order. Raises ToolFailed."""
    found: list[str] = []
    for server in servers:
        async with _connected(server) as client:
            found += await _names(client)
    return found


async def call(servers: Sequence[Any], name: str, arguments: dict[str, Any]) -> Result:
    """The result of the first tool of this name. Raises ToolFailed. Cancelling ends the call there too."""
    for server in servers:
        async with _connected(server) as client:
            if name in await _names(client):
                result = await client.call_tool(name, arguments, progress_callback=_still_waiting)
                text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
                return Result(text, result.is_error)
    raise ToolFailed(f"no server has a tool {name}")


async def _still_waiting(progress: float, total: float | None, message: str | None) -> None:
    """That it is asked for makes the server say now and then that the call goes on."""


async def _names(client: Client) -> list[str]:
    found: list[str] = []
    more = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=more)
        found += [tool.name for tool in page.tools]
        more = page.next_cursor
        if not more:
            break
    return found


@asynccontextmanager
async def _connected(server: Any) -> AsyncIterator[Client]:
    try:
        async with _transport(server) as transport, Client(transport) as client:
            yield client
    except Exception as error:
        leaf: BaseException = error
        while isinstance(leaf, BaseExceptionGroup):
            leaf = leaf.exceptions[0]
        raise ToolFailed(str(leaf) or type(leaf).__name__) from error


@asynccontextmanager
async def _transport(server: Any) -> AsyncIterator[Any]:
    kind = getattr(server, "type", "stdio")
    if kind == "stdio":
        env = {item.name: item.value for item in server.env}
        yield StdioServerParameters(command=server.command, args=list(server.args), env=env)
        return
    headers = {item.name: item.value for item in server.headers}
    if kind == "sse":
        yield sse_client(server.url, headers, sse_read_timeout=24 * 3600)
        return
    # A proxy of the environment has no way to this machine's own ports.
    timeout = httpx2.Timeout(None, connect=_CONNECT)
    async with httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=False) as http:
        yield streamable_http_client(server.url, http_client=http, max_sse_event_size=None)
