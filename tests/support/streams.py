"""The streams service in this process, against a scripted agentctl, as a gateway would use it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tieline_protocol import batch, jetstream, messages, service, subjects
from tieline_protocol.batch import EventRecord
from tieline_protocol.bus import Bus, BusSettings
from tieline_protocol.messages import Request
from tieline_streams import app
from tieline_streams.config import Config, Executors, Limits

from tests.support.agentctl import Agentctl
from tests.support.eventually import eventually

USER = "ada@example.org"


def executors(daemon: Agentctl, root: Path, routes: str = "field") -> Executors:
    """A file of executors with the scripted daemon as the default."""
    token_file = root / "token"
    token_file.parent.mkdir(parents=True, exist_ok=True)
    token_file.write_text(daemon.script.token + "\n")
    static = {
        "kind": "static",
        "control_url": daemon.control_url,
        "token_file": str(token_file),
        "root": str(root / "work"),
        "routes": routes,
    }
    agent = {"command": ["example-agent", "--fast"], "env": {"DEMO": "1"}}
    return Executors.model_validate({"executors": {"static": static}, "agents": {"example": agent}})


@contextlib.asynccontextmanager
async def running(
    nats_url: str, known: Executors, limits: Limits | None = None, **nats: Any
) -> AsyncIterator[None]:
    """The service's own app, until the block is left."""
    config = Config(BusSettings(nats_url, "streams", **nats), known, limits or Limits())
    async with service.running(service.Common("streams"), app.make(config)):
        yield


class Frontend:
    """What a gateway asks for one user."""

    def __init__(self, bus: Bus, user: str = USER) -> None:
        self.bus = bus
        self.user = user
        self.session = ""

    async def rpc(
        self, endpoint: str, payload: dict[str, Any] | None = None, *, id: str = ""
    ) -> dict[str, Any]:
        return await self._ask(subjects.rpc("streams", endpoint, self.user), payload or {}, id, 30_000)

    async def open(self, **payload: Any) -> str:
        opened = await self.rpc("open", payload)
        assert opened["state"] == "ready"
        self.session = opened["session_id"]
        return self.session

    async def command(
        self,
        action: str,
        payload: dict[str, Any] | None = None,
        *,
        id: str = "",
        budget_ms: int = 8_000,
        session: str = "",
    ) -> dict[str, Any]:
        session = session or self.session
        body = {"session_id": session, **(payload or {})}
        return await self._ask(subjects.command(self.user, session, action), body, id, budget_ms)

    async def _ask(self, subject: str, payload: dict[str, Any], id: str, budget_ms: int) -> dict[str, Any]:
        request = Request(id=id or secrets.token_hex(8), user=self.user, budget_ms=budget_ms, payload=payload)
        received = await self.bus.request(subject, request.encode(), budget_ms / 1000 + 1)
        return messages.outcome(received.data)

    async def log(self, name: str, session: str = "") -> list[Any]:
        """All events of a log as they are stored, each once."""
        subject = subjects.log_events(self.user, session or self.session, name)
        found: list[EventRecord] = []
        async for stored in jetstream.read_all(self.bus, subjects.stream_of(name), subject):
            for record in batch.events(batch.decode(stored.data)):
                position = (record.cursor.epoch, record.cursor.offset)
                if not found or position > (found[-1].cursor.epoch, found[-1].cursor.offset):
                    found.append(record)
        return found

    async def events(self, name: str, type: str | None = None) -> list[dict[str, Any]]:
        """The events of a log, of one type where it is given."""
        return [
            record.event for record in await self.log(name) if type is None or record.event["type"] == type
        ]

    async def until(self, name: str, type: str, timeout: float = 8, **fields: Any) -> dict[str, Any]:
        """Wait for an event with these fields, and return it."""

        async def found() -> dict[str, Any] | None:
            for event in await self.events(name, type):
                if all(event.get(key) == value for key, value in fields.items()):
                    return event
            return None

        event = await eventually(found, timeout)
        assert event is not None
        return event
