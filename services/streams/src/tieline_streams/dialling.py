"""Opening a WebSocket to a daemon, and which refusals are for good."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from picows import WSError, WSHandshakeError, ws_connect
from tieline_protocol import agentctl_http, jsontext
from tieline_protocol.errors import BadMessage, Code, Refused, Unavailable

from tieline_streams.sockets import Socket


class Fatal(Refused):
    """The daemon is not ours, or not there any more: dialling again cannot help."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.UNAVAILABLE, message)


async def dial(
    url: str,
    headers: Mapping[str, str],
    on_texts: Callable[[list[bytes]], None],
    *,
    limit: float,
    max_frame: int,
    may_act: Callable[[], bool] = lambda: True,
) -> Socket:
    """Connect. Raises Fatal, Unavailable. While it is not the case that `may_act`, nothing is used or written."""
    if not may_act():
        raise Unavailable("this process is not certain to own the session")
    socket = Socket(on_texts, max_frame, may_act)
    try:
        async with asyncio.timeout(limit + 0.5):
            await ws_connect(
                lambda: socket,
                url,
                extra_headers=dict(headers),
                max_frame_size=max_frame,
                max_redirects=0,
                websocket_handshake_timeout=limit,
            )
    except WSHandshakeError as exc:
        raise _handshake(exc) from exc
    except (WSError, OSError, TimeoutError) as exc:
        raise Unavailable(f"the daemon cannot be reached: {exc or type(exc).__name__}") from exc
    return socket


def _handshake(exc: WSHandshakeError) -> Refused | Unavailable:
    if exc.response is None:
        return Unavailable(f"the daemon cannot be reached: {exc}")
    status = int(exc.response.status)
    body: object = None
    with contextlib.suppress(BadMessage):
        body = jsontext.loads(exc.raw_body or b"")
    if status == 401:
        return Fatal("the daemon does not accept our token")
    if agentctl_http.is_gone(status, body):
        return Fatal("the instance is gone")
    return Unavailable(f"the daemon answered {status} to the dial")
