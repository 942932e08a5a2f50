"""Fixtures that many tests use. A server per test: it starts in some tens of ms, and a test may kill its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tieline_protocol import bus as bus_module
from tieline_protocol import streams
from tieline_protocol.bus import Bus, BusSettings

from tests.support.nats_server import NatsServer


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A real NATS with JetStream, of this test's own."""
    async with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Bus]:
    """A connection to `nats_server`, where all streams and buckets exist."""
    async with bus_module.connect(BusSettings(nats_server.url, "test")) as connected:
        await streams.ensure(connected, streams.StreamLimits())
        yield connected
