"""Remotes through the gateway: the real remotes service, real sockets, frames as a browser writes them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
from tieline import Client, Remote
from tieline_protocol.bus import BusSettings
from tieline_protocol.service import Common, running
from tieline_remotes.app import make
from tieline_remotes.config import Config

from tests.support.gateway import gateway, token
from tests.support.nats_server import NatsServer


@contextlib.asynccontextmanager
async def remotes(nats_url: str) -> AsyncIterator[None]:
    async with running(Common("remotes"), make(Config(BusSettings(nats_url, "remotes"), drain=0.2))):
        yield


@pytest.fixture
async def url(nats_server: NatsServer) -> AsyncIterator[str]:
    """A gateway beside a remotes service."""
    async with remotes(nats_server.url), gateway(nats_server.url) as url:
        yield url


async def test_a_script_calls_a_function_of_another_script(url: str) -> None:
    browser = Remote("browser")

    @browser.function
    async def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    async with Client(url, token()) as owner, Client(url, token()) as caller, owner.serve(browser) as served:
        assert served.functions == ["add"]
        assert await caller.call("browser", "add", {"a": 1, "b": 2}) == 3
