"""Three nats-servers that keep every stream three times, on this machine; each is killed and started again at will."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tieline_protocol import jetstream, subjects
from tieline_protocol.bus import Bus
from tieline_protocol.errors import TielineError

from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer
from tests.support.ports import free_ports

_NODES = 3


class Cluster:
    """Use as `async with Cluster(directory) as cluster`."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(_NODES)
        routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in ports)
        self.nodes = {
            f"n{number}": NatsServer(
                directory / f"n{number}",
                extra=f"server_name: n{number}\n"
                f'cluster {{ name: tests, listen: "127.0.0.1:{port}", routes: [{routes}] }}\n',
            )
            for number, port in enumerate(ports, 1)
        }

    @property
    def url(self) -> str:
        """All of them, for clients."""
        return ",".join(node.url for node in self.nodes.values())

    async def leader(self, bus: Bus, stream: str) -> str:
        """The node that leads a stream."""

        async def found() -> str | None:
            try:
                info = await jetstream.api(bus, subjects.stream_api("INFO", stream), timeout=2)
            except TielineError:
                return None
            leader: str | None = info.get("cluster", {}).get("leader")
            return leader

        return str(await eventually(found, 20, 0.1))

    async def whole(self, bus: Bus, stream: str) -> None:
        """Until every node has all of a stream."""

        async def current() -> bool:
            try:
                info = await jetstream.api(bus, subjects.stream_api("INFO", stream), timeout=2)
            except TielineError:
                return False
            replicas = info.get("cluster", {}).get("replicas", [])
            return len(replicas) == _NODES - 1 and all(one.get("current") for one in replicas)

        await eventually(current, 30, 0.1)

    async def __aenter__(self) -> Cluster:
        try:
            await asyncio.gather(*(node.start() for node in self.nodes.values()))
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            await node.kill()
