"""What an operator does now and then, done: a backup is put back, a node of the broker is sent away."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path

import pytest
from tieline_protocol import bus as broker

from tests.support.deployment import Deployment
from tests.support.eventually import eventually

pytestmark = [pytest.mark.timeout(180), pytest.mark.long]


async def test_a_backup_is_put_back_and_no_position_is_given_twice(tmp_path: Path) -> None:
    cluster = Deployment(tmp_path / "cluster")
    async with cluster:
        async with cluster.frontend() as front:
            session = await front.open(workspace="w", title="Before")
            await front.watch(session)
            await front.ask("agent.prompt", session, text="say kept")
            await eventually(lambda: "kept" in front.text(), 20)
            _snapshot(cluster, tmp_path / "backup")
            # What comes after the snapshot is lost, another owner and its positions among it.
            await cluster.services["streams"].stop(20)
            await cluster.services["streams"].start()
            await front.ask("agent.prompt", session, text="say lost")
            await eventually(lambda: "lost" in front.text(), 20)
            cursors = dict(front.cursors)
        await cluster.stop_services()
        for node in cluster.nodes:
            node.kill()
            shutil.rmtree(node.directory / "data")
            shutil.copytree(tmp_path / "backup" / node.name, node.directory / "data")

        await cluster.start_broker()
        code, log = await cluster.migrate(TIELINE_RESTORED="true")
        assert code == 0, log
        await cluster.start_services()

        async with cluster.frontend() as front:
            await front.watch(session, ["agent"], {"agent": cursors["agent"]})

            async def is_ready() -> bool:
                return (await front.ask("session.get", session))["state"] == "ready"

            await eventually(is_ready, 60, 0.5)
            await front.ask("agent.prompt", session, text="say again")
            await eventually(lambda: "again" in front.text(), 60)
            assert "lost" not in front.text()
            (opening,) = front.of("epoch")

    assert opening.body["clean"] is False


def _snapshot(cluster: Deployment, into: Path) -> None:
    """The volumes of all nodes, as they are at one moment each."""
    for node in cluster.nodes:
        node.signal(signal.SIGSTOP)
    try:
        for node in cluster.nodes:
            shutil.copytree(node.directory / "data", into / node.name)
    finally:
        for node in cluster.nodes:
            node.signal(signal.SIGCONT)


async def test_a_broker_node_that_is_drained_sends_its_clients_to_the_others(tmp_path: Path) -> None:
    """The hook runs before SIGTERM, which the server then takes for what it is already doing."""
    async with Deployment(tmp_path) as cluster, broker.connect(cluster.settings("operator")) as bus:
        node = cluster.nodes[0]
        node.pre_stop()
        node.signal(signal.SIGTERM)
        await asyncio.sleep(1)
        assert node.code is None, "SIGTERM must not cut the lame duck short"
        async with cluster.frontend() as front:
            session = await front.open(workspace="w")
            await eventually(lambda: node.code is not None, 60, 0.1)
            await front.ask("session.get", session)
            await front.ask("session.close", session)
        assert node.code == 0
        await bus.flush()
