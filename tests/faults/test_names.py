"""Peers behind names: what a name leads to is looked up at every dial, and who answers there is not taken for who was
there before. The old address swallows whatever is sent to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tieline_protocol import bus as bus_module
from tieline_protocol.bus import Bus, BusSettings
from tieline_protocol.errors import TielineError
from tieline_streams.config import Limits

from tests.support import streams
from tests.support.agentctl import Agentctl, complete, event
from tests.support.eventually import eventually
from tests.support.link import Link
from tests.support.nats_server import NatsServer
from tests.support.streams import Frontend

OLD, NEW = "127.0.0.2", "127.0.0.3"
NAME = "peer.example"
SOON = Limits(heartbeat=0.2, dead=1, dial=1)

pytestmark = pytest.mark.timeout(40)


class Names:
    """What `NAME` resolves to in this process."""

    def __init__(self) -> None:
        self.address = OLD
        self._ask = socket.getaddrinfo

    def resolve(self, host: Any, *args: Any, **rest: Any) -> Any:
        return self._ask(self.address if host in (NAME, NAME.encode()) else host, *args, **rest)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    made = Names()
    monkeypatch.setattr(socket, "getaddrinfo", made.resolve)
    return made


@contextlib.contextmanager
def swallowing(host: str, port: int) -> Iterator[None]:
    """A port whose queue is full: the kernel drops every SYN, and a dial hears nothing."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        full.bind((host, port))
        full.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((host, port))
        yield


class Pod(Agentctl):
    """A daemon that can be reached at addresses of its own, at the same ports everywhere."""

    def __init__(self, at: str = OLD) -> None:
        super().__init__()
        self.at = at
        self.stack = contextlib.AsyncExitStack()
        self.links: list[Link] = []

    async def reachable(self, host: str, port: int) -> None:
        self.links.append(await self.stack.enter_async_context(Link("127.0.0.1", port, at=(host, port))))

    async def announced(self, port: int) -> int:
        await self.reachable(self.at, port)
        return port

    @property
    def ports(self) -> list[int]:
        return [int(self.control_url.rpartition(":")[2]), *self.instances.values()]

    async def leave(self) -> None:
        """The old address says nothing any more, not even that it is gone."""
        for link in self.links:
            link.freeze()
            link.refuse()
            self.stack.enter_context(swallowing(OLD, link.port))


@pytest.fixture
async def pod() -> AsyncIterator[Pod]:
    async with Pod() as made:
        await made.reachable(OLD, made.ports[0])
        made.control_url = f"http://{NAME}:{made.ports[0]}"
        async with made.stack:
            yield made


async def test_a_daemon_that_moved_is_found_at_its_new_address_and_goes_on(
    bus: Bus, nats_server: NatsServer, pod: Pod, names: Names, tmp_path: Path
) -> None:
    """B83: dials to the old address end in time, a later one reaches the new; what was asked there has failed."""
    user = Frontend(bus)
    pod.script.answers["agent.stderr"] = None
    async with streams.running(nats_server.url, streams.executors(pod, tmp_path), SOON):
        await user.open()
        await user.command("agent.prompt", {"text": "x"})
        pod.agent[0].send(event("message_chunk", text="one "))
        await user.until("agent", "message_chunk")
        asked = asyncio.create_task(user.command("agent.stderr"))
        await eventually(lambda: pod.agent[0].of("agent.stderr"))
        await pod.leave()
        with pytest.raises(TielineError) as refused:
            await asked
        for port in pod.ports:
            await pod.reachable(NEW, port)
        names.address = NEW
        began = asyncio.get_running_loop().time()
        await eventually(lambda: len(pod.agent) == len(pod.workspace) == 2, 20)
        took = asyncio.get_running_loop().time() - began
        pod.agent[1].send(event("message_chunk", text="two"), complete(1))
        ended = await user.until("agent", "turn", state="ended")

    print(f"a daemon that moved was found {took:.1f} s after its name said so")
    assert refused.value.code == "unavailable"
    assert "".join(one["text"] for one in await user.events("agent", "message_chunk")) == "one two"
    assert ended["reason"] == "end_turn"
    assert took < 10


async def test_another_daemon_at_the_same_name_is_not_taken_for_the_old_one(
    bus: Bus, nats_server: NatsServer, pod: Pod, names: Names, tmp_path: Path
) -> None:
    """B83: it knows nothing of the session, which fails with its turn, and the next session works there."""
    user = Frontend(bus)
    async with (
        Pod(NEW) as other,
        other.stack,
        streams.running(nats_server.url, streams.executors(pod, tmp_path), SOON),
    ):
        session = await user.open()
        await user.command("agent.prompt", {"text": "x"})
        await pod.leave()
        control = pod.ports[0]
        at = Link("127.0.0.1", other.ports[0], at=(NEW, control))
        other.links.append(await other.stack.enter_async_context(at))
        names.address = NEW
        failed = await user.until("agent", "session", state="failed", timeout=20)
        turns = [one for one in await user.events("agent", "turn") if one["state"] == "ended"]
        following = await user.open()

    assert list(other.instances) == [following]
    assert following != session
    assert "gone" in failed["reason"]
    assert [one["reason"] for one in turns] == ["disconnected"]
    assert len(pod.agent) == 1


async def test_a_broker_that_moved_is_found_at_its_new_address(nats_server: NatsServer, names: Names) -> None:
    """B83, for the broker's name."""
    port = nats_server.port
    async with Link("127.0.0.1", port, at=(OLD, port)) as old, contextlib.AsyncExitStack() as stack:
        bus = await stack.enter_async_context(
            bus_module.connect(BusSettings(f"nats://{NAME}:{port}", "test"))
        )
        await old.down()
        stack.enter_context(swallowing(OLD, port))
        await eventually(lambda: not bus.connected)
        await stack.enter_async_context(Link("127.0.0.1", port, at=(NEW, port)))
        names.address = NEW
        began = asyncio.get_running_loop().time()
        await eventually(lambda: bus.connected, 20)
        took = asyncio.get_running_loop().time() - began

    print(f"a broker that moved was found {took:.1f} s after its name said so")
    assert took < 10
