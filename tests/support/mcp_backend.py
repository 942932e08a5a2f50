"""A backend on the agent stream of a daemon's instance that answers the requests of the agent's tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import connect

from tests.support.agent_rig import Backend
from tests.support.daemon import Instance
from tests.support.eventually import eventually

Answer = Callable[[dict[str, Any]], Any]


def plugin_tool(name: str, **more: Any) -> dict[str, Any]:
    """As the wire has it: `<remote>__<function>` for the agent, two names for the backend."""
    remote, _, function = name.partition("__")
    return {
        "plugin_id": remote,
        "local_name": function,
        "exposed_name": name,
        "description": f"{function} of {remote}",
        "surfaces": ["kanban-task"],
        "input_schema": {"type": "object", "properties": {"upper": {"type": "boolean"}}},
        **more,
    }


class McpBackend:
    """`answers`: by action, the payload of the response, a function that makes it, an Exception for an error, or None
    for no answer at all."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.answers: dict[str, Any] = {}
        self._seen = 0

    def asked(self, action: str) -> list[dict[str, Any]]:
        """The frames of this action that came so far."""
        return [frame for frame in self.backend.frames if frame.get("action") == action]

    async def until_asked(self, action: str, count: int = 1) -> dict[str, Any]:
        """The payload of the so-manieth request of this action."""
        frames = await eventually(lambda: len(found := self.asked(action)) >= count and found)
        payload: dict[str, Any] = frames[count - 1]["payload"]
        return payload

    async def reply(self, asked: dict[str, Any], payload: Any, type: str = "response") -> None:
        frame = {"id": asked["id"], "type": type, "action": asked["action"], "payload": payload}
        await self.backend.socket.send(json.dumps(frame))

    async def serve(self) -> None:
        while True:
            await eventually(lambda: len(self.backend.frames) > self._seen, timeout=60)
            frame = self.backend.frames[self._seen]
            self._seen += 1
            if frame["type"] != "request":
                continue
            answer = self.answers.get(frame["action"], Exception("UNKNOWN_ACTION"))
            if callable(answer):
                answer = answer(frame["payload"])
            if isinstance(answer, Exception):
                await self.reply(frame, {"code": str(answer), "message": "not supported"}, "error")
            elif answer is not None:
                await self.reply(frame, answer)


@asynccontextmanager
async def mcp_backend(instance: Instance, *tools: str, **answers: Any) -> AsyncIterator[McpBackend]:
    """Connected, with these tools, each of which answers `done` unless `invoke_plugin_tool` says otherwise."""
    url = f"ws://127.0.0.1:{instance.port}/api/v1/agent/stream"
    async with connect(
        url, additional_headers=instance.headers, max_size=None, compression=None, proxy=None
    ) as socket:
        it = McpBackend(Backend(socket))
        it.answers = {
            "mcp.list_plugin_tools": {
                "generation": "g1",
                "revision": 1,
                "tools": [plugin_tool(name) for name in tools],
            },
            "mcp.invoke_plugin_tool": {"text": "done", "is_error": False},
            **{f"mcp.{action}": answer for action, answer in answers.items()},
        }
        serving = asyncio.create_task(it.serve(), name="mcp backend")
        try:
            yield it
        finally:
            serving.cancel()
            await asyncio.wait([serving])
            await it.backend.close()
