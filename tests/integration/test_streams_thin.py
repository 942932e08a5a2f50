"""One session from its opening to its close, against a scripted daemon, as a gateway sees it."""

from __future__ import annotations

from pathlib import Path

from tieline_protocol.bus import Bus

from tests.support import streams
from tests.support.agentctl import Agentctl, complete, event
from tests.support.nats_server import NatsServer
from tests.support.streams import Frontend


async def test_a_prompt_streams_its_answer_into_the_log(
    nats_server: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    async with Agentctl() as daemon:
        async with streams.running(nats_server.url, streams.executors(daemon, tmp_path)):
            user = Frontend(bus)
            await user.open(title="first")
            accepted = await user.command("agent.prompt", {"text": "hello", "client_message_id": "m1"})
            daemon.agent[0].send(event("message_chunk", text="Hi "), event("message_chunk", text="there"))
            daemon.agent[0].send(complete(1))
            await user.until("agent", "turn", state="ended", reason="end_turn")
            head = await user.command("head")
            await user.command("session.close")

        log = await user.log("agent")

    assert accepted == {"generation": 1}
    assert [record.cursor.offset for record in log] == list(range(1, len(log) + 1))
    assert log[0].event == {"type": "epoch", "previous": 0, "last": 0, "clean": True}
    chunks = [record.event["text"] for record in log if record.event["type"] == "message_chunk"]
    assert "".join(chunks) == "Hi there"
    assert log[-1].event == {"type": "session", "state": "closed"}
    assert head["agent"]["confirmed"] <= head["agent"]["last"]
    assert not daemon.instances
