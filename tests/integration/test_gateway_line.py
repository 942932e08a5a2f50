"""The thin line: a frontend authenticates, opens, prompts, watches live and from a cursor."""

from __future__ import annotations

from tests.support.gateway import frontend, gateway
from tests.support.nats_server import NatsServer
from tests.support.owner import owning, serving


async def test_a_prompt_reaches_the_owner_and_its_answer_comes_back(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        told = await front.ask("agent.prompt", {"session_id": "s1", "text": "fix it", "unknown": 1})

    assert told["type"] == "response"
    assert told["action"] == "agent.prompt"
    assert told["payload"]["action"] == "agent.prompt"
    [(action, request)] = owner.asked
    assert (action, request.user) == ("agent.prompt", "ada")
    assert request.payload["text"] == "fix it"
    assert request.payload["client_message_id"]


async def test_opening_a_session_goes_to_any_replica_of_streams(nats_server: NatsServer) -> None:
    async def open(request: object) -> dict[str, str]:
        return {"session_id": "s9", "state": "ready"}

    async with (
        serving(nats_server.url, "open", open) as asked,
        gateway(nats_server.url) as url,
        frontend(url) as front,
    ):
        told = await front.ask("session.open", {"title": "one"})

    assert told["payload"] == {"session_id": "s9", "state": "ready"}
    assert asked[0].payload == {"title": "one"}


async def test_a_viewer_gets_what_is_kept_then_what_happens(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        for n in range(5):
            await owner.agent.emit({"type": "tool_call", "n": n})
        told = await front.ask("session.subscribe", {"session_id": "s1", "logs": ["agent"]})
        await front.until(lambda: len(front.numbers()) == 5)
        for n in range(5, 10):
            await owner.agent.emit({"type": "message_chunk", "n": n}, confirm=False)
        await front.until(lambda: len(front.numbers()) == 10)

    assert told["payload"]["logs"]["agent"]["reset"] is False
    assert front.numbers() == list(range(10))
    assert front.of("agent")[0]["event"]["type"] == "epoch"


async def test_a_viewer_goes_on_after_the_last_event_it_saw(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url:
        async with frontend(url) as front:
            await front.ask("session.subscribe", {"session_id": "s1", "logs": ["agent"]})
            for n in range(5):
                await owner.agent.emit({"type": "message_chunk", "n": n})
            await front.until(lambda: len(front.numbers()) == 5)
            cursor = front.events[-1]["cursor"]
        for n in range(5, 8):
            await owner.agent.emit({"type": "message_chunk", "n": n})
        async with frontend(url) as front:
            await front.ask(
                "session.subscribe", {"session_id": "s1", "logs": ["agent"], "cursors": {"agent": cursor}}
            )
            await owner.agent.emit({"type": "message_chunk", "n": 8})
            await front.until(lambda: 8 in front.numbers())

    assert front.numbers() == [5, 6, 7, 8]
    assert len(front.events) == 4
