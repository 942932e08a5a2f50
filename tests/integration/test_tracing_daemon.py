"""A daemon hears of the trace that a request belongs to, also where nobody records spans."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tieline_protocol import messages, subjects
from tieline_protocol.bus import Bus
from tieline_protocol.errors import Refused
from tieline_protocol.messages import Request
from tieline_streams.config import Limits

from tests.support import streams
from tests.support.agentctl import Agentctl, complete
from tests.support.nats_server import NatsServer
from tests.support.streams import USER, Frontend

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
async def daemon() -> AsyncIterator[Agentctl]:
    async with Agentctl() as scripted:
        yield scripted


@pytest.fixture
async def user(
    nats_server: NatsServer, bus: Bus, daemon: Agentctl, tmp_path: Path
) -> AsyncIterator[Frontend]:
    async with streams.running(nats_server.url, streams.executors(daemon, tmp_path), Limits()):
        frontend = Frontend(bus)
        await frontend.open()
        yield frontend


async def asked(user: Frontend, action: str, trace: str | None, **payload: Any) -> dict[str, Any]:
    body = {"session_id": user.session, **payload}
    request = Request(id=f"{action}-{trace}", user=USER, budget_ms=5_000, payload=body, traceparent=trace)
    received = await user.bus.request(subjects.command(USER, user.session, action), request.encode(), 6)
    return messages.outcome(received.data)


async def test_a_request_on_the_agents_socket_has_the_trace_as_metadata(
    user: Frontend, daemon: Agentctl
) -> None:
    await asked(user, "agent.prompt", TRACE, text="one")
    daemon.agent[-1].send(complete(1))
    await user.until("agent", "turn", state="ended")
    await asked(user, "agent.prompt", None, text="two")
    first, second = [frame for frame in daemon.agent[-1].frames if frame.get("action") == "agent.prompt"]

    assert first["metadata"] == {"traceparent": TRACE}
    assert "metadata" not in second


async def test_a_request_over_http_has_the_trace_as_a_header(user: Frontend, daemon: Agentctl) -> None:
    for trace in (TRACE, None):
        with pytest.raises(Refused):  # this daemon has no files
            await asked(user, "workspace.file-content", trace, path="a")
    first, second = daemon.asked[-2:]

    assert first.headers["traceparent"] == TRACE
    assert "traceparent" not in second.headers
