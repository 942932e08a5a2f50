"""HTTP to one agentctl instance: one pooled client, a total time for each call, a cap on each answer.

Stale connections: what changes nothing is sent again on a new connection; what changes something always gets a new
connection of its own, so that it never meets one that the daemon has just closed, and is never sent twice.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import httpx
from tieline_protocol import agentctl_http, jsontext, tracing
from tieline_protocol.agentctl_http import Call, Spelling
from tieline_protocol.errors import (
    BadMessage,
    Code,
    FateUnknown,
    ProtocolError,
    Refused,
    TielineError,
    TimedOut,
    Unavailable,
)

from tieline_streams.dialling import Fatal

_CONNECT = 3.0


@functools.cache
def _tls() -> ssl.SSLContext:
    """Made once: it reads all of the system's certificates."""
    return ssl.create_default_context()


class _ByMethod(httpx.AsyncBaseTransport):
    """Kept connections for what may be repeated, a new one for everything else."""

    def __init__(self) -> None:
        self._kept = httpx.AsyncHTTPTransport(_tls(), limits=httpx.Limits(max_keepalive_connections=8))
        self._fresh = httpx.AsyncHTTPTransport(_tls(), limits=httpx.Limits(max_keepalive_connections=0))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        safe = request.extensions.get("safe", False)
        return await (self._kept if safe else self._fresh).handle_async_request(request)

    async def aclose(self) -> None:
        await self._kept.aclose()
        await self._fresh.aclose()


def client(url: str, headers: Mapping[str, str]) -> httpx.AsyncClient:
    """No proxies, no redirects: the daemon is exactly where its record says."""
    return httpx.AsyncClient(
        base_url=url,
        headers=dict(headers),
        transport=_ByMethod(),
        timeout=httpx.Timeout(None, connect=_CONNECT),
        follow_redirects=False,
        trust_env=False,
    )


async def fetch(client: httpx.AsyncClient, call: Call, timeout: float, cap: int) -> tuple[int, bytes]:
    """Status and body. Raises Unavailable (did not run), FateUnknown, TimedOut, Refused (too_large)."""
    try:
        async with asyncio.timeout(timeout):
            try:
                return await _once(client, call, cap)
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                if not call.safe:
                    raise
                return await _once(client, call, cap)
    except TimeoutError as exc:
        raise TimedOut(f"the daemon did not answer within {timeout:g} s") from exc
    except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
        raise Unavailable(f"the daemon cannot be reached: {exc or type(exc).__name__}") from exc
    except AttributeError as exc:
        if "getpeername" not in str(exc):
            raise
        # Closed as soon as it was open: anyio asks a socket that is gone for its address. Nothing was sent.
        raise Unavailable("the daemon closed the connection at once") from exc
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError) as exc:
        raise ProtocolError(f"the request cannot be written: {exc}") from exc
    except httpx.HTTPError as exc:
        raise FateUnknown(f"the connection to the daemon broke: {exc or type(exc).__name__}") from exc


async def _once(client: httpx.AsyncClient, call: Call, cap: int) -> tuple[int, bytes]:
    content = None if call.body is None else jsontext.dumps(call.body)
    headers = {} if content is None else {"Content-Type": "application/json"}
    if (trace := tracing.current()) is not None:
        headers["traceparent"] = trace
    request = client.build_request(
        call.method,
        call.path,
        params=call.query or None,
        content=content,
        headers=headers,
        extensions={"safe": call.safe, "timeout": {"connect": _CONNECT}},
    )
    response = await client.send(request, stream=True)
    try:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > cap:
                raise Refused(Code.TOO_LARGE, f"the daemon's answer has more than {cap:,} bytes")
        return response.status_code, bytes(body)
    finally:
        await response.aclose()


def judge(status: int, body: bytes) -> tuple[bytes, Any]:
    """The JSON text of an answer and its value. Raises Fatal, Refused."""
    try:
        value = jsontext.loads(body)
    except BadMessage as exc:
        if 200 <= status < 300:
            raise Refused(Code.INTERNAL, "the daemon's answer is not JSON") from exc
        value = None
    if status == 401:
        raise Fatal("the daemon does not accept our token")
    if agentctl_http.is_gone(status, value):
        raise Fatal("the instance is gone")
    if not 200 <= status < 300 and (refused := agentctl_http.http_refused(status, value)) is not None:
        raise refused
    return body, value


class Instance:
    """One instance, by HTTP."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        spelling: Spelling,
        cap: int,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self._may_act = may_act
        self._client = client(url, headers)
        self._spelling: Spelling = spelling
        self._cap = cap

    async def close(self) -> None:
        await self._client.aclose()

    async def call(self, action: str, payload: dict[str, Any], timeout: float) -> bytes:
        """One operation: its answer as JSON text of an object, a failure in an orderly way (`success: false`) too."""
        call = agentctl_http.call(action, payload, self._spelling)
        if not self._may_act():
            raise Unavailable("this process is not certain to own the session")
        attributes = {"rpc.system": "agentctl", "rpc.method": action, "http.request.method": call.method}
        with tracing.part(f"agentctl {action}", "client", attributes):
            body, value = judge(*await fetch(self._client, call, timeout, self._cap))
        if isinstance(value, dict):
            return body
        if action == "process.list":
            return b'{"processes":%b}' % (body if isinstance(value, list) else b"[]")
        raise Refused(Code.INTERNAL, "the daemon's answer is not an object")

    async def healthy(self, timeout: float) -> None:
        """Wait until the instance answers. Raises Unavailable, Fatal."""
        why: TielineError = Unavailable("the daemon is not healthy")
        try:
            async with asyncio.timeout(timeout):
                while True:
                    try:
                        status, _ = await fetch(
                            self._client, agentctl_http.health(self._spelling), timeout, self._cap
                        )
                        if status == 200:
                            return
                        why = Unavailable(f"the daemon's health check answers {status}")
                    except (Unavailable, Refused) as exc:
                        why = exc
                    await asyncio.sleep(0.1)
        except TimeoutError as exc:
            raise Unavailable(f"the daemon is not healthy after {timeout:g} s: {why.message}") from exc

    async def do(self, action: str, payload: dict[str, Any], timeout: float) -> None:
        """An operation of the start-up: anything but success is an error. Raises TielineError."""
        value = jsontext.loads(await self.call(action, payload, timeout))
        if value.get("success") is False:
            raise Unavailable(f"{action}: {value.get('error') or 'the daemon refused'}")
