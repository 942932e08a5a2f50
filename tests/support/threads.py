"""The agent service in this process with a scripted model and the real remotes service, as a gateway would use it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

from tieline_agent import app
from tieline_agent.config import Config
from tieline_agent.limits import Limits
from tieline_agent.model import ModelSettings
from tieline_protocol import batch, jetstream, messages, service, subjects
from tieline_protocol.batch import EventRecord
from tieline_protocol.bus import Bus, BusSettings
from tieline_protocol.errors import NoResponders
from tieline_protocol.messages import Request

from tests.support.eventually import eventually
from tests.support.remote_owner import Called, RemoteOwner

USER = "ada@example.org"


def remote(name: str) -> dict[str, str]:
    """The resource that gives a thread a remote."""
    return {"kind": "system", "subkind": "remote", "content": name}


def function(name: str) -> dict[str, Any]:
    """A function that takes anything."""
    return {"name": name, "description": f"Does {name}", "parameters": {"type": "object"}}


def config(nats_url: str, model_url: str, **knobs: Any) -> Config:
    """A replica as tests want it: it gives up soon."""
    made = Config(
        BusSettings(nats_url, "agent"),
        ModelSettings(model_url, "no key", "m", idle=5.0, total=20.0),
        Limits(tool_ms=5_000),
        drain=0.5,
    )
    return replace(made, **knobs)


@contextlib.asynccontextmanager
async def replica(settings: Config) -> AsyncIterator[dict[str, Any]]:
    """The service's own app, until the block is left."""
    async with service.running(service.Common("agent"), app.make(settings)) as facts:
        yield facts


class Chat:
    """What a gateway asks for one user, in one thread."""

    def __init__(self, bus: Bus, user: str = USER) -> None:
        self.bus = bus
        self.user = user
        self.thread = ""
        self.traceparent: str | None = None

    async def rpc(
        self, endpoint: str, payload: dict[str, Any] | None = None, *, id: str = ""
    ) -> dict[str, Any]:
        return await self._ask(subjects.rpc("agent", endpoint, self.user), payload or {}, id)

    async def create(self, **payload: Any) -> str:
        self.thread = (await self.rpc("create", payload))["thread_id"]
        return self.thread

    async def command(self, action: str, *, id: str = "", **payload: Any) -> dict[str, Any]:
        """To the thread's owner; where there is none, to any replica. `self.traceparent` goes with it."""
        body = {"thread_id": self.thread, **payload}
        try:
            subject = subjects.command(self.user, self.thread, f"thread.{action}")
            return await self._ask(subject, body, id)
        except NoResponders:
            return await self.rpc(action, body, id=id)

    async def say(self, content: str, *resources: dict[str, Any], **more: Any) -> str:
        """Write a message; returns the id of its run."""
        answered = await self.command("message", content=content, resources=list(resources), **more)
        return str(answered["run_id"])

    async def ask(self, content: str, *resources: dict[str, Any]) -> dict[str, Any]:
        """Write a message and wait for the end of its run."""
        return await self.ended(await self.say(content, *resources))

    async def ended(self, run_id: str, timeout: float = 8) -> dict[str, Any]:
        return await self.until("run", timeout, run_id=run_id, state="ended")

    async def head(self) -> dict[str, Any]:
        subject = subjects.command(self.user, self.thread, subjects.HEAD)
        return messages.outcome((await self.bus.request(subject, b"", 2)).data)["thread"]

    async def _ask(self, subject: str, payload: dict[str, Any], id: str) -> dict[str, Any]:
        request = Request(
            id=id or secrets.token_hex(8),
            user=self.user,
            budget_ms=8_000,
            payload=payload,
            traceparent=self.traceparent,
        )
        received = await self.bus.request(subject, request.encode(), 9)
        return messages.outcome(received.data)

    async def log(self) -> list[EventRecord]:
        """All events of the log as they are stored, each once."""
        subject = subjects.log_events(self.user, self.thread, "thread")
        found: dict[tuple[int, int], EventRecord] = {}
        async for stored in jetstream.read_all(self.bus, subjects.stream_of("thread"), subject):
            for record in batch.events(batch.decode(stored.data)):
                found.setdefault((record.cursor.epoch, record.cursor.offset), record)
        return [found[position] for position in sorted(found)]

    async def events(self, type: str | None = None) -> list[dict[str, Any]]:
        return [record.event for record in await self.log() if type is None or record.event["type"] == type]

    async def until(self, type: str, timeout: float = 8, **fields: Any) -> dict[str, Any]:
        """Wait for an event with these fields, and return it."""

        async def found() -> dict[str, Any] | None:
            for event in await self.events(type):
                if all(event.get(key) == value for key, value in fields.items()):
                    return event
            return None

        return await eventually(found, timeout)

    async def texts(self) -> list[str]:
        """What the assistant said, whole messages only."""
        return [
            event["content"]
            for event in await self.events("message")
            if event["role"] == "assistant" and not event.get("interrupted")
        ]


Answering = Callable[[Called], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def serving_calls(owner: RemoteOwner, answering: Answering) -> AsyncIterator[list[Called]]:
    """Every call that reaches the owner is given to `answering`, concurrently; yields those that came."""
    came: list[Called] = []

    async def serve() -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                called = await owner.calls.get()
                came.append(called)
                group.create_task(answering(called))

    task = asyncio.create_task(serve())
    try:
        yield came
    finally:
        task.cancel()
        await asyncio.wait([task])
