"""What happens when nobody reads: the agent waits, nothing is lost, nothing is told twice."""

import asyncio
import json
from pathlib import Path

import pytest
from tieline_agentctl.event_queue import MOST_FRAMES
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedError

from tests.support.agent_rig import RAW_AGENT, agent_rig, steps
from tests.support.eventually import eventually

pytestmark = pytest.mark.timeout(60)

END = {"end": {"stopReason": "end_turn"}}


async def test_a_flood_that_nobody_reads_waits_in_the_agent_and_arrives_in_order(tmp_path: Path):
    """B65: 20,000 events while no backend is there."""
    count = 20_000
    async with agent_rig(tmp_path, *RAW_AGENT) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.opened()
        async with rig.backend() as backend:
            flood = [{"sleep": 0.2}, *({"say": f"{number} "} for number in range(count)), END]
            await backend.prompt(steps(*flood))
        await eventually(lambda: len(rig.agent._events) >= MOST_FRAMES)
        assert rig.agent.status()["busy"] is True
        assert len(rig.agent._events) < MOST_FRAMES + 10
        async with rig.backend() as backend:
            await backend.until("complete")

            assert backend.text == "".join(f"{number} " for number in range(count))


async def test_a_cancel_is_answered_at_once_in_the_middle_of_a_flood(tmp_path: Path):
    """B65"""
    async with agent_rig(tmp_path, *RAW_AGENT) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.opened()
            flood = [*({"say": "x" * 100} for _ in range(10_000)), {"cancel": True}, END]
            await backend.prompt(steps(*flood))
            async with asyncio.timeout(5):
                assert (await backend.do("agent.cancel"))["success"] is True
            await backend.until("complete")

            assert len(backend.of("message_chunk")) == 10_000


async def numbers_into(found: list[int], socket: ClientConnection) -> None:
    async for message in socket:
        frame = json.loads(message)
        if frame["type"] == "message_chunk":
            found.append(int(frame["text"].split()[0]))


async def test_a_reader_that_is_stuck_loses_the_stream_and_the_next_one_gets_all_that_was_not_written(
    tmp_path: Path,
):
    """B52: what the broken connection was given and what the next one gets do not overlap, and leave no hole."""
    count = 3_000
    async with agent_rig(tmp_path, *RAW_AGENT) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.opened()
        stuck = await connect(rig.url, max_size=None, max_queue=1, compression=None)
        padding = "." * 5_000
        flood = [*({"say": f"{number} {padding}"} for number in range(count)), END]
        request = {"id": "1", "type": "request", "action": "agent.prompt", "payload": {"text": steps(*flood)}}
        await stuck.send(json.dumps(request))
        await eventually(lambda: len(rig.agent._events) > 100)  # the socket takes no more, so they pile up
        async with rig.backend() as backend:
            await backend.until("complete")
            last = [int(event["text"].split()[0]) for event in backend.of("message_chunk")]
        first: list[int] = []
        with pytest.raises(ConnectionClosedError, match="4001"):
            await numbers_into(first, stuck)

        assert first
        assert last
        assert first + last == list(range(count))


async def test_a_stop_while_nobody_reads_does_not_hang(tmp_path: Path):
    async with agent_rig(tmp_path, *RAW_AGENT) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.opened()
        async with rig.backend() as backend:
            await backend.prompt(
                steps({"sleep": 0.1}, *({"say": "x"} for _ in range(10_000)), {"sleep": 60}), 5
            )
        await eventually(lambda: len(rig.agent._events) >= MOST_FRAMES)
        await rig.agent.stop()
        assert rig.agent.status()["busy"] is False
        await rig.agent.start()
        async with rig.backend() as backend:
            error = await backend.until("error")

            assert error["prompt_generation"] == 5


async def test_a_request_in_flight_ends_with_its_connection(tmp_path: Path):
    async with agent_rig(tmp_path, "sleep", "60") as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.send("agent.initialize", {})
            await backend.do("agent.stderr")
            streaming = rig.agent._stream
        await eventually(lambda: rig.agent._stream is None)

        assert streaming is not None
        assert len(streaming._scope) == 0
