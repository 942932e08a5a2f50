"""A scripted agentctl: a control server and instance servers as the daemon in the field has them, on real sockets.

Written from the wire's description, not from our daemon's code. HTTP and WebSocket are done by hand, byte by byte, so
that a test can misbehave at any level. What a test does not script answers as a healthy daemon would.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import struct
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.support.eventually import eventually

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
SUPPORTS = {
    "supports_image": False,
    "supports_audio": False,
    "supports_embedded_context": False,
    "supports_prompt_queueing": False,
}


@dataclass(slots=True)
class Asked:
    """An HTTP request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


Answer = tuple[int, Any]
Handler = Callable[[Asked], Answer | Awaitable[Answer]]


def frame(payload: bytes, opcode: int = 1, fin: bool = True) -> bytes:
    """A WebSocket frame from server to client."""
    first = (0x80 if fin else 0) | opcode
    size = len(payload)
    if size < 126:
        return bytes((first, size)) + payload
    if size < 65_536:
        return struct.pack(">BBH", first, 126, size) + payload
    return struct.pack(">BBQ", first, 127, size) + payload


def text(value: Any) -> bytes:
    """What `send` takes, as bytes: bytes as they are, everything else as JSON."""
    return value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()


class Stream:
    """One WebSocket that the backend opened. `frames` is what it sent, decoded."""

    def __init__(
        self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, shell: bool
    ) -> None:
        self.asked = asked
        self.reader = reader
        self.writer = writer
        self.shell = shell  # whether a shell existed when this socket was opened
        self.frames: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        self.pings = 0
        self.closed = asyncio.Event()
        self.close_code: int | None = None
        self.answer_pings = True

    def send(self, *values: Any) -> None:
        """Text frames, in one write."""
        self.write(b"".join(frame(text(value)) for value in values))

    def write(self, data: bytes) -> None:
        """Any bytes at all."""
        self.writer.write(data)

    async def drain(self) -> None:
        await self.writer.drain()

    def close(self, code: int = 1000) -> None:
        """Say goodbye in an orderly way."""
        self.write(frame(struct.pack(">H", code), 8))

    def abort(self) -> None:
        """Just cut the connection, as the daemon in the field does."""
        self.writer.transport.abort()

    def of(self, type: str) -> list[dict[str, Any]]:
        """What was sent of one type (workspace) or action (agent)."""
        return [one for one in self.frames if type in (one.get("type"), one.get("action"))]

    async def serve(self, on_frame: Callable[[Stream, dict[str, Any]], None]) -> None:
        parts: list[bytes] = []
        try:
            while True:
                opcode, fin, payload = await self._frame()
                if opcode == 8:
                    self.close_code = struct.unpack(">H", payload[:2])[0] if len(payload) >= 2 else None
                    self.write(frame(payload, 8))
                    return
                if opcode == 9:
                    self.pings += 1
                    if self.answer_pings:
                        self.write(frame(payload, 10))
                elif opcode in (0, 1, 2):
                    parts.append(payload)
                    if fin:
                        whole, parts = b"".join(parts), []
                        self.raw.append(whole)
                        value = json.loads(whole)
                        self.frames.append(value)
                        on_frame(self, value)
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            self.closed.set()

    async def _frame(self) -> tuple[int, bool, bytes]:
        first, second = await self.reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            size = struct.unpack(">H", await self.reader.readexactly(2))[0]
        elif size == 127:
            size = struct.unpack(">Q", await self.reader.readexactly(8))[0]
        assert second & 0x80, "a client's frames are masked"
        mask = await self.reader.readexactly(4)
        data = await self.reader.readexactly(size)
        pad = (mask * (size // 4 + 1))[:size]
        plain = int.from_bytes(data, "big") ^ int.from_bytes(pad, "big") if size else 0
        return first & 0x0F, bool(first & 0x80), plain.to_bytes(size, "big")


@dataclass(slots=True)
class Script:
    """What a test may change at any time."""

    token: str = "scripted-token"
    # HTTP answers by (method, path); a path ends in `*` to match all below it.
    http: dict[tuple[str, str], Handler] = field(default_factory=dict)
    # Payloads by action for requests on the agent stream; None: never answered; a Stream callable: its own business.
    answers: dict[str, Any] = field(default_factory=dict)
    # Frames that travel in one packet with the 101.
    agent_greeting: list[Any] = field(default_factory=list)
    workspace_greeting: list[Any] = field(default_factory=lambda: [{"type": "connected", "timestamp": 1}])
    # Status and body for the dial, instead of the upgrade, by stream.
    refuse: dict[str, Answer] = field(default_factory=dict)
    # Accept the dial and close at once.
    slam: set[str] = field(default_factory=set)
    # Close each HTTP connection: "after" the answer, or after reading the request and "before" answering (once).
    hang_up: str = ""


class Agentctl:
    """Use as `async with Agentctl() as daemon`."""

    def __init__(self) -> None:
        self.script = Script()
        self.asked: list[Asked] = []  # what instance servers were asked
        self.controlled: list[Asked] = []  # what the control server was asked
        self.instances: dict[str, int] = {}
        self.bodies: dict[str, Any] = {}
        self.agent: list[Stream] = []
        self.workspace: list[Stream] = []
        self.started = False
        self.connections = 0
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.control_url = ""

    async def __aenter__(self) -> Self:
        port = await self._listen(self._control)
        self.control_url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        await asyncio.sleep(0)  # a connection that was accepted a moment ago gets its handler
        writers = list(self._writers)
        for writer in writers:
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def forget_instances(self) -> None:
        """As when the machine was started anew: nothing listens where the instances were."""
        for server in self._servers[1:]:
            server.close()
        del self._servers[1:]
        self.instances.clear()

    async def _listen(self, serve: Callable[[Asked, Any, Any], Awaitable[bool]]) -> int:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            self._writers.add(writer)
            self.connections += 1
            number = self.connections
            try:
                while (asked := await _request(reader, number)) is not None and await serve(
                    asked, reader, writer
                ):
                    pass
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                self._tasks.discard(task)
                self._writers.discard(writer)
                writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=2**20)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    # Control server

    async def _control(self, asked: Asked, reader: Any, writer: asyncio.StreamWriter) -> bool:
        self.controlled.append(asked)
        if asked.path == "/health":
            return _reply(writer, 200, {"status": "ok", "timestamp": "2031-04-05T06:07:08Z"})
        if asked.headers.get("authorization") != f"Bearer {self.script.token}":
            return _reply(writer, 401, {"error": "invalid auth token"})
        handler = self.script.http.get((asked.method, asked.path))
        if handler is not None:
            return _reply(writer, *await _called(handler, asked))
        if (asked.method, asked.path) == ("POST", "/api/v1/instances"):
            id = asked.json["id"]
            port = await self._listen(lambda one, reader, writer: self._instance(id, one, reader, writer))
            self.instances[id] = await self.announced(port)
            self.bodies[id] = asked.json
            return _reply(writer, 201, {"id": id, "port": self.instances[id]})
        if asked.method == "GET" and asked.path.startswith("/api/v1/instances/"):
            id = unquote(asked.path.rpartition("/")[2])
            if id not in self.instances:
                return _reply(writer, 404, {"error": "instance not found"})
            return _reply(writer, 200, {"id": id, "port": self.instances[id], "status": "running"})
        if asked.method == "DELETE" and asked.path.startswith("/api/v1/instances/"):
            id = unquote(asked.path.rpartition("/")[2])
            if self.instances.pop(id, None) is None:
                return _reply(writer, 404, {"error": "instance not found"})
            return _reply(writer, 200, {"message": "instance stopped successfully"})
        return _reply(writer, 404, b"404 page not found")

    # For those who script more

    async def announced(self, port: int) -> int:
        """The port that the backend is told of an instance that listens on `port`."""
        return port

    def refusal(self, name: str, asked: Asked) -> Answer | None:
        """What a dial is answered instead of the upgrade."""
        return self.script.refuse.get(name)

    def connected(self, name: str, stream: Stream) -> None:
        """A stream is up."""

    # Instance servers

    async def _instance(self, id: str, asked: Asked, reader: Any, writer: asyncio.StreamWriter) -> bool:
        self.asked.append(asked)
        script = self.script
        if script.hang_up == "before":
            script.hang_up = ""
            writer.transport.abort()
            return False
        if asked.path != "/health" and asked.headers.get("authorization") != f"Bearer {script.token}":
            return _reply(writer, 401, {"error": "invalid auth token"})
        if asked.headers.get("x-instance-id", id) != id:
            gone = {
                "error": "instance no longer exists at this port",
                "expected_id": id,
                "recycled_port": True,
            }
            return _reply(writer, 404, gone)
        if asked.headers.get("upgrade", "").lower() == "websocket":
            await self._upgrade(asked, reader, writer)
            return False
        keep = _reply(writer, *await self._answer(asked))
        if script.hang_up == "after":
            await writer.drain()
            writer.close()
            return False
        return keep

    async def _answer(self, asked: Asked) -> Answer:
        for (method, path), handler in self.script.http.items():
            if method == asked.method and (
                path == asked.path or (path.endswith("*") and asked.path.startswith(path[:-1]))
            ):
                return await _called(handler, asked)
        match asked.method, asked.path:
            case "GET", "/health" | "/api/v1/health":
                return 200, {"status": "ok", "timestamp": "2031-04-05T06:07:08Z"}
            case "POST", "/api/v1/agent/configure" | "/api/v1/configure":
                return 200, {"success": True, "message": "agent configured"}
            case "POST", "/api/v1/start":
                self.started = True
                return 200, {"success": True, "message": "agent started", "command": "agent"}
            case "POST", "/api/v1/stop":
                return 200, {"success": True, "message": "agent stopped"}
            case "GET", "/api/v1/status":
                info = {"status": "running", "exit_code": -1, "pid": 4711}
                return 200, {"agent_status": "running", "process_info": info}
        return 404, b"404 page not found"

    async def _upgrade(
        self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        name = {"/api/v1/agent/stream": "agent", "/api/v1/workspace/stream": "workspace"}[asked.path]
        if (refusal := self.refusal(name, asked)) is not None:
            _reply(writer, *refusal)
            await writer.drain()
            return
        key = asked.headers["sec-websocket-key"].encode()
        accept = base64.b64encode(hashlib.sha1(key + _GUID).digest())
        head = (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\n\r\n" % accept
        )
        stream = Stream(asked, reader, writer, self.started)
        greeting = self.script.agent_greeting if name == "agent" else self.script.workspace_greeting
        writer.write(head + b"".join(frame(text(value)) for value in greeting))
        await writer.drain()
        streams = self.agent if name == "agent" else self.workspace
        streams.append(stream)
        if name in self.script.slam:
            writer.close()
            stream.closed.set()
            return
        self.connected(name, stream)
        await stream.serve(self._on_agent if name == "agent" else self._on_workspace)

    # Requests to the backend

    def request(self, action: str, payload: Any = None, *, id: str = "") -> str:
        """Ask the backend on the agent stream that is up; returns the id."""
        id = id or str(uuid.uuid4())
        envelope = {"id": id, "type": "request", "action": action, "payload": payload}
        self.agent[-1].send({**envelope, "timestamp": "2031-04-05T06:07:08.5Z"})
        return id

    def replies(self, id: str) -> list[dict[str, Any]]:
        """What came back, over whatever stream."""
        return [
            one
            for stream in self.agent
            for one in stream.frames
            if one.get("id") == id and one.get("type") in ("response", "error")
        ]

    async def reply(self, id: str, timeout: float = 8) -> dict[str, Any]:
        """Wait for the first reply: an envelope."""
        return (await eventually(lambda: self.replies(id), timeout))[0]

    async def ask(self, action: str, payload: Any = None) -> Any:
        """The payload of the backend's response."""
        reply = await self.reply(self.request(action, payload))
        assert reply["type"] == "response", reply
        return reply["payload"]

    def _on_workspace(self, stream: Stream, value: dict[str, Any]) -> None:
        if value["type"] == "ping" and stream.answer_pings:
            stream.send({"type": "pong", "timestamp": 1})

    def _on_agent(self, stream: Stream, value: dict[str, Any]) -> None:
        if value.get("type") != "request":
            return
        action = value["action"]
        if action in self.script.answers:
            answer = self.script.answers[action]
        else:
            answer = _DEFAULTS.get(action, Exception("UNKNOWN_ACTION"))
        if callable(answer):
            answer = answer(stream, value)
        if answer is None:
            return
        envelope = {"id": value["id"], "action": action, "timestamp": "2031-04-05T06:07:08Z"}
        if isinstance(answer, Exception):
            payload: Any = {"code": str(answer), "message": f"refused: {action}"}
            stream.send({**envelope, "type": "error", "payload": payload})
        else:
            stream.send({**envelope, "type": "response", "payload": answer})


_DEFAULTS: dict[str, Any] = {
    "agent.initialize": {"success": True, "agent_info": {"name": "unknown", "version": "unknown"}},
    "agent.session.new": {"success": True, "session_id": "acp-1"},
    "agent.session.load": {"success": True, "session_id": "acp-1"},
    "agent.session.reset": {"success": True, "session_id": "acp-2"},
    "agent.prompt": {"success": True},
    "agent.cancel": {"success": True},
    "agent.stderr": {"lines": []},
    "agent.permissions.list": {"permissions": [], "total": 0},
}


def event(type: str, **fields: Any) -> dict[str, Any]:
    """An agent event: flat, with the four booleans that are always there."""
    return {"type": type, **fields, **SUPPORTS}


def complete(generation: int, reason: str = "end_turn") -> dict[str, Any]:
    """The end of a prompt."""
    return event("complete", session_id="acp-1", prompt_generation=generation, data={"stop_reason": reason})


async def _called(handler: Handler, asked: Asked) -> Answer:
    answer = handler(asked)
    return answer if isinstance(answer, tuple) else await answer


async def _request(reader: asyncio.StreamReader, connection: int) -> Asked | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return Asked(method, parts.path, query, headers, body, connection)


def _reply(writer: asyncio.StreamWriter, status: int, body: Any) -> bool:
    raw = text(body)
    kind = "text/plain" if isinstance(body, bytes) else "application/json; charset=utf-8"
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(raw)}\r\n\r\n"
    writer.write(head.encode() + raw)
    return True
