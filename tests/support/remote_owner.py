"""The far end of the remotes service: a gateway that holds connections of users, played by a test on the real bus."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from tieline_protocol import jsontext, leases, subjects
from tieline_protocol.bus import Bus, Received
from tieline_protocol.errors import Refused
from tieline_protocol.messages import Request, answer, outcome, refusal

Function = Callable[["Called"], Awaitable[None]]


class Called:
    """One `remote-call` that reached a connection."""

    def __init__(
        self, owner: RemoteOwner, connection: str, payload: dict[str, Any], traceparent: str | None = None
    ) -> None:
        self.owner = owner
        self.traceparent = traceparent
        self.connection = connection
        self.payload = payload
        self.request_id: str = payload["requestId"]
        self.args = payload["args"]
        self.cancelled = asyncio.Event()

    async def say(self, verb: str, body: bytes, *, connection: str = "", gateway: str = "") -> dict[str, Any]:
        """What the gateway passes on in this connection's name (or in somebody else's). Raises Refused."""
        who = {"gateway": gateway or self.owner.lease.id, "connection": connection or self.connection}
        replica, call = subjects.parse_request_id(self.request_id)
        message = jsontext.dumps(who) + b"\n" + body
        received = await self.owner.bus.request(subjects.call(replica, call, verb), message, 2)
        return outcome(received.data)

    async def result(self, value: Any) -> dict[str, Any]:
        return await self.say("result", jsontext.dumps(value))

    async def error(self, text: str) -> dict[str, Any]:
        return await self.say("error", jsontext.dumps({"error": text}))


class RemoteOwner:
    """A gateway with any number of connections; `calls` holds what reached them, in order."""

    def __init__(self, bus: Bus, lease: leases.ProcessLease) -> None:
        self.bus = bus
        self.lease = lease
        self.calls: asyncio.Queue[Called] = asyncio.Queue()
        self.registrations: dict[tuple[str, str], str] = {}
        self.under_way: dict[str, Called] = {}
        self.refuse: Refused | None = None
        self.refusing = asyncio.Event()  # a call came that is refused
        self.pause = asyncio.Event()  # cleared: a refusal takes its time
        self.pause.set()

    async def _received(self, received: Received) -> bytes | None:
        connection, verb = received.subject.split(".")[-2:]
        if verb == "remote-call-cancel":
            self.under_way[jsontext.loads(received.data)["requestId"]].cancelled.set()
            return None
        if (refuse := self.refuse) is not None:
            self.refusing.set()
            await self.pause.wait()
            return refusal(refuse)
        request = Request.decode(received.data)
        called = Called(self, connection, request.payload, request.traceparent)
        self.under_way[called.request_id] = called
        self.calls.put_nowait(called)
        return answer({})

    async def ask(self, endpoint: str, user: str, payload: dict[str, Any]) -> dict[str, Any]:
        """A request to the remotes service. Raises Refused."""
        request = Request(id=secrets.token_hex(8), user=user, budget_ms=5000, payload=payload)
        received = await self.bus.request(subjects.rpc("remotes", endpoint, user), request.encode(), 5)
        return outcome(received.data)

    async def connect(
        self, user: str, name: str, functions: list[Any], connection: str = "c1", **more: Any
    ) -> dict[str, Any]:
        """What a gateway sends when a user's socket sends `remote-connect`."""
        registration = secrets.token_hex(8)
        self.registrations[connection, name] = registration
        return await self.ask(
            "connect",
            user,
            {
                "remotename": name,
                "functions": functions,
                "gateway": self.lease.id,
                "connection": connection,
                "registration": registration,
                "connected_at": 1,
                **more,
            },
        )


@contextlib.asynccontextmanager
async def remote_owner(bus: Bus) -> AsyncIterator[RemoteOwner]:
    """A gateway's end of the remotes service, with a lease of its own."""
    async with leases.holding(bus, "gateway") as lease:
        owner = RemoteOwner(bus, lease)
        server = await bus.serve(subjects.connections(lease.id), owner._received, limit=10_000)
        try:
            yield owner
        finally:
            await server.close()
