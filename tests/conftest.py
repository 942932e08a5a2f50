"""Fixtures that many tests use. A server per test: it starts in some tens of ms, and a test may kill its own."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tieline_protocol import bus as bus_module
from tieline_protocol import streams
from tieline_protocol.bus import Bus, BusSettings

from tests.support.nats_server import NatsServer

if TYPE_CHECKING:
    from tests.support.process import Process

# The same examples in every run, and no verdict on how fast they were: other tests want the same cores.
settings.register_profile(
    "tieline", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "long", max_examples=1_000, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
# A user's own shell runs that user's start-up files, which may do anything; a test that kills one in the middle of
# them may leave a lock that the next one waits for.
os.environ["SHELL"] = "/bin/sh"

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tieline"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What stands after the collection stays to the end: no run of the garbage collector needs to look through it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


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


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, str]]:
    """The process of a daemon that the tests of a module share, and its token."""
    from tests.support.daemon import shared_daemon  # takes half a second, which most runs need not spend

    with shared_daemon(tmp_path_factory.mktemp("daemon")) as it:
        yield it
