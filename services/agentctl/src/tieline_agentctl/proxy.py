"""A reverse proxy to a server on this machine: HTTP and WebSocket, bytes as they come."""

import asyncio
from collections.abc import AsyncIterator

import h11
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-authorization"}
)
OURS = frozenset({"host", "authorization", "x-instance-id", "content-length"})


async def forward(request: Request, port: int, path: str) -> Response:
    """The upstream's answer, or 502 when it gives none."""
    body = await request.body()
    target = path + (f"?{request.url.query}" if request.url.query else "")
    headers = [
        (name, value) for name, value in request.headers.items() if name not in HOP and name not in OURS
    ]
    headers += [("host", f"127.0.0.1:{port}"), ("connection", "close"), ("content-length", str(len(body)))]
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as exc:
        return Response(f"proxy error: {exc}", 502, media_type="text/plain")
    talk = h11.Connection(h11.CLIENT)
    try:
        sent = talk.send(h11.Request(method=request.method, target=target, headers=headers)) or b""
        writer.write(sent + (talk.send(h11.Data(data=body)) or b"") + (talk.send(h11.EndOfMessage()) or b""))
        await writer.drain()
        head = await _next(talk, reader)
        if not isinstance(head, h11.Response):
            raise h11.RemoteProtocolError("no response")
    except (OSError, h11.ProtocolError) as exc:
        writer.close()
        return Response(f"proxy error: {exc}", 502, media_type="text/plain")
    response = StreamingResponse(_body(talk, reader, writer), head.status_code)
    response.raw_headers = [(name, value) for name, value in head.headers if name.decode() not in HOP]
    return response


async def _next(talk: h11.Connection, reader: asyncio.StreamReader) -> object:
    while True:
        event = talk.next_event()
        if event is h11.NEED_DATA:
            talk.receive_data(await reader.read(64 * 1024))
        elif not isinstance(event, h11.InformationalResponse):
            return event


async def _body(
    talk: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncIterator[bytes]:
    try:
        while isinstance(event := await _next(talk, reader), h11.Data):
            yield bytes(event.data)
    finally:
        writer.close()


async def forward_websocket(websocket: WebSocket, port: int, path: str) -> None:
    query = f"?{websocket.url.query}" if websocket.url.query else ""
    wanted = [Subprotocol(name) for name in websocket.scope.get("subprotocols", [])]
    try:
        async with connect(
            f"ws://127.0.0.1:{port}{path}{query}",
            subprotocols=wanted or None,
            max_size=None,
            compression=None,
            proxy=None,
            ping_interval=None,
        ) as upstream:
            await websocket.accept(upstream.subprotocol)
            await _join(websocket, upstream)
    except (OSError, InvalidHandshake):
        await websocket.send_denial_response(Response("proxy error", 502, media_type="text/plain"))


async def _join(websocket: WebSocket, upstream: ClientConnection) -> None:
    """Either side's end is the other's."""
    up = asyncio.create_task(_up(websocket, upstream), name="proxy up")
    down = asyncio.create_task(_down(websocket, upstream), name="proxy down")
    try:
        await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (up, down):
            task.cancel()
        await asyncio.wait([up, down])


async def _up(websocket: WebSocket, upstream: ClientConnection) -> None:
    try:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            await upstream.send(text if text is not None else message["bytes"])
    except ConnectionClosed:
        return


async def _down(websocket: WebSocket, upstream: ClientConnection) -> None:
    try:
        async for data in upstream:
            if isinstance(data, str):
                await websocket.send_text(data)
            else:
                await websocket.send_bytes(data)
        await websocket.close()
    except (WebSocketDisconnect, ConnectionClosed):
        return
