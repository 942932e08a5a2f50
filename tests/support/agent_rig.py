"""The daemon's agent by itself, on a real server: one WebSocket route and nothing else. And a backend to talk to it."""

import asyncio
import itertools
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from tieline_agentctl.agent import Agent, AgentSettings
from tieline_agentctl.serving import bind, serving
from websockets.asyncio.client import ClientConnection, connect

EXAMPLE_AGENT = (sys.executable, "-m", "tieline_agentctl.example_agent")


class Backend:
    """One connection of a backend: requests by id, everything else in the order it came."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.frames: list[dict[str, Any]] = []  # what is not an answer: events and MCP requests
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._ids = itertools.count(1)
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read(), name="backend reader")

    async def _read(self) -> None:
        async for message in self.socket:
            frame = orjson.loads(message)
            answer = (
                self._answers.pop(frame.get("id", ""), None)
                if frame["type"] in ("response", "error")
                else None
            )
            if answer is not None:
                answer.set_result(frame)
            else:
                self.frames.append(frame)
            self._news.set()

    async def ask(self, action: str, payload: Any = None) -> dict[str, Any]:
        """The whole answering envelope."""
        return await (await self.send(action, payload))

    async def send(self, action: str, payload: Any = None, **more: Any) -> asyncio.Future[dict[str, Any]]:
        """The request is written; the future is its answer. `more`: further members of the envelope."""
        id = f"q{next(self._ids)}"
        answer = self._answers[id] = asyncio.get_running_loop().create_future()
        frame = {"id": id, "type": "request", "action": action, "payload": payload, **more}
        await self.socket.send(orjson.dumps(frame).decode())
        return answer

    async def do(self, action: str, payload: Any = None) -> dict[str, Any]:
        """The payload of a response; an error fails the test."""
        answer = await self.ask(action, payload)
        assert answer["type"] == "response", answer
        answered: dict[str, Any] = answer["payload"]
        return answered

    async def opened(self, **new: Any) -> str:
        """Initialize and make a session; its id. The events until then are dropped."""
        await self.do("agent.initialize", {"client_name": "test", "client_version": "1"})
        made = await self.do("agent.session.new", {"cwd": "", "mcp_servers": [], **new})
        await self.until("session_status")
        self.frames.clear()
        return str(made["session_id"])

    async def prompt(self, text: str, generation: int = 1, **more: Any) -> None:
        assert await self.do("agent.prompt", {"text": text, "prompt_generation": generation, **more}) == {
            "success": True
        }

    async def until(self, type: str, count: int = 1) -> dict[str, Any]:
        """Wait for the so-manieth event of this type; that event."""
        while len(found := self.of(type)) < count:
            self._news.clear()
            if self._reader.done():
                raise AssertionError(
                    f"the stream closed before {type}: {[frame['type'] for frame in self.frames]}"
                )
            waiting = asyncio.create_task(self._news.wait())
            await asyncio.wait([waiting, self._reader], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        return found[count - 1]

    def of(self, *types: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame["type"] in types]

    def types(self) -> list[str]:
        return [frame["type"] for frame in self.frames]

    @property
    def text(self) -> str:
        """What a viewer would see of the answer."""
        return "".join(frame.get("text", "") for frame in self.of("message_chunk"))

    async def close(self) -> None:
        await self.socket.close()
        await asyncio.wait([self._reader])
        if not self._reader.cancelled():
            self._reader.exception()  # the daemon may have cut the connection before, which is for the test to judge


class Rig:
    """An agent and where its stream is."""

    def __init__(self, agent: Agent, port: int) -> None:
        self.agent = agent
        self.url = f"ws://127.0.0.1:{port}/api/v1/agent/stream"

    @asynccontextmanager
    async def backend(self, epoch: int | None = None) -> AsyncIterator[Backend]:
        headers = {} if epoch is None else {"X-Tieline-Epoch": str(epoch)}
        async with connect(self.url, additional_headers=headers, max_size=None, compression=None) as socket:
            backend = Backend(socket)
            try:
                yield backend
            finally:
                await backend.close()


@asynccontextmanager
async def agent_rig(
    workspace: Path, *command: str, env: dict[str, str] | None = None, **settings: Any
) -> AsyncIterator[Rig]:
    """An agent that is not started yet."""
    with_paths = {
        **os.environ,
        "TIELINE_EXAMPLE_AGENT_STATE": str(workspace.parent / "example-agent-state"),
        **(env or {}),
    }
    settled = AgentSettings(
        **{
            "instance_id": "instance-1",
            "workspace": workspace,
            "port": 41001,
            "default_command": command or EXAMPLE_AGENT,
            "env": with_paths,
            "requires_process_kill": True,
            **settings,
        }
    )
    async with Agent(settled) as agent:
        app = Starlette(routes=[WebSocketRoute("/api/v1/agent/stream", agent.serve_stream)])
        async with serving(app, bind("127.0.0.1", 0)) as port:
            yield Rig(agent, port)


RAW_AGENT = (sys.executable, str(Path(__file__).with_name("raw_agent.py")))


def steps(*what: Any) -> str:
    """A prompt for the raw agent."""
    return orjson.dumps(what).decode()


def answers(**by_method: Any) -> dict[str, str]:
    """Environment for the raw agent: its answers; `__` stands for a slash, `before__`/`after__` for updates around."""
    named = {
        name.replace("before__", "before ").replace("after__", "after ").replace("__", "/"): answer
        for name, answer in by_method.items()
    }
    return {"RAW_AGENT": orjson.dumps(named).decode()}
