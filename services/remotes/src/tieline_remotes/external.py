"""External remotes: functions that run behind an HTTP address or in an MCP server instead of in the session.

`http`: `{requestId, function, args}` is posted to the address; 200 with the JSON of the result, or with
`{"error": text}` in an answer of any other status. `mcp`: a streamable-HTTP MCP server; its tools are the functions,
its progress is the call's progress, and a call that is cancelled here is cancelled there.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import httpx2
import structlog
from tieline_protocol import jsontext, tracing
from tieline_protocol.errors import BadMessage, Code, Refused
from tieline_protocol.remotes import RESULT_BYTES, External

from tieline_remotes.addresses import Network, endpoint
from tieline_remotes.pinned import PinnedTransport

if TYPE_CHECKING:  # half of the service's start would go into it, and most replicas never meet an MCP server
    from mcp import Client
    from mcp.types import CallToolResult

log = structlog.get_logger()

Progress = Callable[[dict[str, Any]], Awaitable[None]]

_CONNECT = 5.0  # s to reach an address; how long a call may take is the call's own deadline
_LIST = 20.0  # s for an MCP server to say what its tools are
_HOP_HEADERS = {"host", "content-length", "transfer-encoding", "connection"}


class Externals:
    """What this replica calls outside. One HTTP client for all, without cookies and without redirects."""

    def __init__(self, allowed: Sequence[Network]) -> None:
        self._allowed = allowed
        self._http: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        self._http = self._client({}, None)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._http is not None:
            await self._http.aclose()

    def _client(self, headers: dict[str, str], read: float | None) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            transport=PinnedTransport(self._allowed),
            headers={name: value for name, value in headers.items() if name.lower() not in _HOP_HEADERS},
            timeout=httpx2.Timeout(_CONNECT, read=read, write=None, pool=None),
            follow_redirects=False,
        )

    async def connect(self, external: External, functions: list[Any]) -> list[Any]:
        """The functions that are to be registered: for MCP the server's tools. Raises Refused, Unavailable."""
        endpoint(external.url)
        if external.kind == "http":
            return functions
        async with _told(external), self._mcp(external, _LIST) as client:
            tools, more = [], None
            while True:
                page = await client.list_tools(cursor=more)
                tools += page.tools
                more = page.next_cursor
                if not more:
                    break
        wanted = {item.get("name") for item in functions if isinstance(item, dict)}
        return [
            {"name": tool.name, "description": tool.description or "", "parameters": dict(tool.input_schema)}
            for tool in tools
            if not wanted or tool.name in wanted
        ]

    async def call(
        self, external: External, request_id: str, function: str, args: dict[str, Any], progress: Progress
    ) -> bytes:
        """The result as JSON text. Raises Refused with the code of the call's end. Cancelling cancels there too."""
        async with _told(external):
            if external.kind == "http":
                return await self._post(external, request_id, function, args)
            return await self._call_tool(external, function, args, progress)
        raise AssertionError("the block above returns or raises")

    async def _post(self, external: External, request_id: str, function: str, args: dict[str, Any]) -> bytes:
        assert self._http is not None  # calls come only between __aenter__ and __aexit__
        body = jsontext.dumps({"requestId": request_id, "function": function, "args": args})
        headers = {
            name: value for name, value in external.headers.items() if name.lower() not in _HOP_HEADERS
        }
        headers |= {"content-type": "application/json", **_trace()}
        async with self._http.stream("POST", external.url, content=body, headers=headers) as response:
            raw = await _bounded(response)
        if response.status_code == 200:
            jsontext.loads(raw)
            return raw
        raise Refused(Code.INTERNAL, _error_of(response.status_code, raw))

    async def _call_tool(
        self, external: External, function: str, args: dict[str, Any], heard: Progress
    ) -> bytes:
        async def told(progress: float, total: float | None, message: str | None) -> None:
            facts = {"progress": progress, "total": total, "message": message}
            await heard({name: value for name, value in facts.items() if value is not None})

        async with self._mcp(external, None) as client:
            return _result_of(await client.call_tool(function, args, progress_callback=told))

    @contextlib.asynccontextmanager
    async def _mcp(self, external: External, read: float | None) -> AsyncIterator[Client]:
        await asyncio.to_thread(importlib.import_module, "mcp.client.streamable_http")
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        async with self._client({**external.headers, **_trace()}, read) as http:
            transport = streamable_http_client(external.url, http_client=http)
            async with Client(transport, read_timeout_seconds=read) as client:
                yield client


def _trace() -> dict[str, str]:
    traceparent = tracing.current()
    return {} if traceparent is None else {"traceparent": traceparent}


async def _bounded(response: httpx2.Response) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        parts.append(part)
        size += len(part)
        if size > RESULT_BYTES:
            raise Refused(Code.TOO_LARGE, f"the result has more than {RESULT_BYTES:,} bytes")
    return b"".join(parts)


def _error_of(status: int, raw: bytes) -> str:
    with contextlib.suppress(BadMessage):
        value = jsontext.loads(raw)
        if isinstance(value, dict) and isinstance(value.get("error"), str):
            return str(value["error"])[:4000]
    return f"the remote answered with HTTP status {status}"


def _result_of(result: CallToolResult) -> bytes:
    from mcp.types import TextContent

    text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    if result.is_error:
        raise Refused(Code.INTERNAL, text or "the tool failed")
    if result.structured_content is not None:
        return jsontext.dumps(result.structured_content)
    if all(isinstance(block, TextContent) for block in result.content):
        return jsontext.dumps(text)
    return jsontext.dumps([block.model_dump(mode="json", exclude_none=True) for block in result.content])


@contextlib.asynccontextmanager
async def _told(external: External) -> AsyncIterator[None]:
    """Foreign errors, alone or in groups, become ours here, once."""
    try:
        yield
    except Exception as exc:
        leaf: BaseException = exc
        while isinstance(leaf, BaseExceptionGroup):
            leaf = leaf.exceptions[0]
        raise _ours(leaf, external) from exc


def _ours(exc: BaseException, external: External) -> Exception:
    mcp = sys.modules.get("mcp")
    if mcp is not None and isinstance(exc, mcp.MCPError):
        return Refused(Code.INTERNAL, f"the MCP server says: {exc}")
    match exc:
        case Refused():
            return exc
        case BadMessage():
            return Refused(Code.INTERNAL, f"the remote's answer is {exc.message}")
        case httpx2.HTTPError() | OSError() | ValueError():
            log.info("an external remote failed", url=external.url, error=repr(exc))
            return Refused(
                Code.UNAVAILABLE, "the external remote cannot be reached, or does not speak as it should"
            )
        case _:
            log.error("an external remote failed", url=external.url, exc_info=exc)
            return Refused(Code.INTERNAL, "the call of the external remote failed")
