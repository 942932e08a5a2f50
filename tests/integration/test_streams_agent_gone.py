"""An agent whose process ends while its session lives on: the next who needs it has it started again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tieline_protocol.bus import Bus
from tieline_protocol.errors import Code, Refused, TielineError

from tests.support import streams
from tests.support.agentctl import Agentctl, Answer, Asked, Stream, complete, event
from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer
from tests.support.streams import Frontend


class Daemon(Agentctl):
    """A daemon whose agent can end."""

    def __init__(self) -> None:
        super().__init__()
        self.pid = 100
        self.code: int | None = None  # None: it runs
        self.script.http["GET", "/api/v1/status"] = self._status
        self.script.http["POST", "/api/v1/start"] = self._start

    def _status(self, asked: Asked) -> Answer:
        state = "running" if self.code is None else "stopped"
        code = -1 if self.code is None else self.code
        return 200, {
            "agent_status": state,
            "process_info": {"status": state, "exit_code": code, "pid": self.pid},
        }

    def _start(self, asked: Asked) -> Answer:
        self.started, self.code = True, None
        self.pid += 1
        self.script.answers.pop("agent.prompt", None)
        return 200, {"success": True, "message": "agent started"}

    def end(self, code: int) -> None:
        """As a process does: only one that failed is told of."""
        self.code = code
        self.script.answers["agent.prompt"] = lambda stream, request: stream.send(
            {
                "id": request["id"],
                "type": "error",
                "action": request["action"],
                "payload": {"code": "INTERNAL_ERROR", "message": "agent not running"},
            }
        )
        if code:
            text = f"Agent process exited with code {code}"
            self.agent[-1].send(event("error", error=text, data={"exit_code": code}))

    def actions(self) -> list[str]:
        """What the agent was asked since the session began."""
        return [one["action"] for stream in self.agent for one in stream.frames][2:]


@pytest.fixture
async def daemon() -> AsyncIterator[Daemon]:
    async with Daemon() as scripted:
        yield scripted


@pytest.fixture
async def user(nats_server: NatsServer, bus: Bus, daemon: Daemon, tmp_path: Path) -> AsyncIterator[Frontend]:
    async with streams.running(nats_server.url, streams.executors(daemon, tmp_path)):
        frontend = Frontend(bus)
        await frontend.open()
        yield frontend


async def states(user: Frontend) -> list[tuple[str, bool]]:
    return [(one["state"], "reason" in one) for one in await user.events("agent", "session")][2:]


async def test_an_agent_that_crashed_is_started_again_by_the_next_prompt(
    user: Frontend, daemon: Daemon
) -> None:
    """B66: its turn ends once, whoever looks at the session sees why, and the conversation goes on."""
    await user.command("agent.prompt", {"text": "one"})
    daemon.end(3)
    told = await user.until(
        "agent",
        "session",
        state="ready",
        reason="the agent has ended with code 3; it is started again when it is needed",
    )
    listed = (await user.rpc("list"))["sessions"][0]
    again = await user.command("agent.prompt", {"text": "two"})
    daemon.agent[-1].send(complete(2))
    await user.until("agent", "turn", generation=2, state="ended", reason="end_turn")
    ends = [
        (one["generation"], one["reason"]) for one in await user.events("agent", "turn") if "reason" in one
    ]

    assert listed["reason"] == told["reason"]
    assert again == {"generation": 2}
    assert ends == [(1, "agent_exited"), (2, "end_turn")]
    assert daemon.actions() == ["agent.prompt", "agent.initialize", "agent.session.load", "agent.prompt"]
    assert await states(user) == [("ready", True), ("ready", False)]
    assert "reason" not in (await user.rpc("list"))["sessions"][0]


async def test_an_agent_that_went_without_a_word_is_started_again_before_the_prompt(
    user: Frontend, daemon: Daemon
) -> None:
    """The daemon said no, so the prompt had not run; it runs once."""
    daemon.end(0)
    answer = await user.command("agent.prompt", {"text": "x", "client_message_id": "m1"})
    await user.until("agent", "turn", generation=answer["generation"], state="running")
    again = await user.command("agent.prompt", {"text": "x", "client_message_id": "m1"})

    assert again == answer == {"generation": 2}
    assert daemon.actions() == [
        *("agent.prompt", "agent.initialize", "agent.session.load"),
        "agent.prompt",
    ]


async def test_many_who_need_an_agent_at_once_have_one_started(user: Frontend, daemon: Daemon) -> None:
    daemon.end(1)
    await user.until("agent", "error")
    await eventually(lambda: states(user))
    await asyncio.gather(
        *(user.command("agent.session.set_mode", {"mode_id": "m"}) for _ in range(3)),
        user.command("agent.prompt", {"text": "x"}),
        return_exceptions=True,
    )

    assert daemon.pid == 102
    assert daemon.actions().count("agent.session.load") == 1


async def test_a_conversation_that_cannot_be_loaded_is_said_and_another_may_begin(
    user: Frontend, daemon: Daemon
) -> None:
    daemon.script.answers["agent.session.load"] = {"success": False, "error": "no such conversation"}
    daemon.end(1)
    await eventually(lambda: states(user))
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            await user.command("agent.prompt", {"text": "x"})
        assert refused.value.code is Code.UNAVAILABLE
        assert "no such conversation; agent.session.new begins another" in refused.value.message
    await user.command("agent.session.new", {})

    assert await user.command("agent.prompt", {"text": "x"}) == {"generation": 1}
    assert daemon.pid == 102
    assert await states(user) == [("ready", True), ("ready", False)]


async def test_nothing_is_cancelled_where_no_agent_is(user: Frontend, daemon: Daemon) -> None:
    daemon.end(1)
    await eventually(lambda: states(user))

    assert await user.command("agent.cancel") == {"state": "ended"}
    assert daemon.actions() == []


async def test_an_agent_that_takes_long_to_start_is_waited_for_by_the_next_who_asks(
    user: Frontend, daemon: Daemon
) -> None:
    held = asyncio.Event()
    start = daemon.script.http["POST", "/api/v1/start"]

    async def slowly(asked: Asked) -> Answer:
        await held.wait()
        return start(asked)  # type: ignore[return-value]

    daemon.script.http["POST", "/api/v1/start"] = slowly
    daemon.end(1)
    await eventually(lambda: states(user))
    with pytest.raises(Refused, match="started again, try again"):
        await user.command("agent.prompt", {"text": "x"}, budget_ms=300)
    held.set()

    assert await user.command("agent.prompt", {"text": "x"}) == {"generation": 1}
    assert daemon.pid == 102


async def test_the_next_owner_starts_the_agent_again_or_says_why_it_cannot(
    nats_server: NatsServer, bus: Bus, daemon: Daemon, tmp_path: Path
) -> None:
    """A session is not lost with its conversation."""
    known = streams.executors(daemon, tmp_path)
    user = Frontend(bus)
    async with streams.running(nats_server.url, known):
        await user.open()
        daemon.end(1)
        await eventually(lambda: states(user))
    daemon.script.answers["agent.session.load"] = {"success": False, "error": "no such conversation"}
    async with streams.running(nats_server.url, known):
        (listed,) = await eventually(lambda: _listed(user, "no such conversation"), timeout=10)
        await eventually(lambda: user.command("session.get", budget_ms=1_000), timeout=10)
        await user.command("agent.session.new", {})
        again = await user.command("agent.prompt", {"text": "x"})
        assert "reason" not in (await user.rpc("list"))["sessions"][0]

    assert listed["state"] == "ready"
    assert again == {"generation": 1}
    assert daemon.pid == 102


async def _listed(user: Frontend, reason: str) -> list[dict]:
    return [one for one in (await user.rpc("list"))["sessions"] if reason in one.get("reason", "")]


@pytest.mark.timeout(30)
async def test_what_an_agent_tells_again_is_not_shown_again_and_a_prompt_waits_until_it_has(
    nats_server: NatsServer, bus: Bus, daemon: Daemon, tmp_path: Path
) -> None:
    """B68: twenty old events before the answer, two stragglers after it, and a prompt in between."""
    known = streams.executors(daemon, tmp_path)
    user = Frontend(bus)
    async with streams.running(nats_server.url, known):
        await user.open()
        await user.command("agent.prompt", {"text": "one"})
        daemon.agent[-1].send(event("message_chunk", text="old "), complete(1))
        await user.until("agent", "turn", generation=1, state="ended")
    daemon.pid += 1  # it was started anew while nobody owned the session
    loading: asyncio.Future[tuple[Stream, str]] = asyncio.get_running_loop().create_future()
    daemon.script.answers["agent.session.load"] = lambda stream, value: loading.set_result(
        (stream, value["id"])
    )
    again = [event("message_chunk", text="old "), event("tool_call", tool_call_id="t1")]
    async with streams.running(nats_server.url, known):
        stream, id = await asyncio.wait_for(loading, 10)
        stream.send(*again * 10)
        await eventually(lambda: _served(user), 15)
        prompting = asyncio.create_task(user.command("agent.prompt", {"text": "two"}, budget_ms=15_000))
        for _ in range(3):  # they are answered beside it
            await user.command("session.get")
        assert daemon.actions().count("agent.prompt") == 1
        told = {
            "id": id,
            "type": "response",
            "action": "agent.session.load",
            "timestamp": "2031-04-05T06:07:08Z",
        }
        stream.send({**told, "payload": {"success": True, "session_id": "acp-1"}}, *again)
        await eventually(lambda: daemon.actions().count("agent.prompt") == 2, 10)
        stream.send(event("message_chunk", text="new"), complete(2))
        assert await prompting == {"generation": 2}
        await user.until("agent", "turn", generation=2, state="ended")

    assert [one["text"] for one in await user.events("agent", "message_chunk")] == ["old ", "new"]
    assert await user.events("agent", "tool_call") == []
    assert [(one["generation"], one["state"]) for one in await user.events("agent", "turn")] == [
        (generation, state) for generation in (1, 2) for state in ("accepted", "running", "ended")
    ]


async def _served(user: Frontend) -> bool:
    """Whether the next owner answers by now."""
    try:
        return bool(await user.command("session.get", budget_ms=1_000))
    except TielineError:
        return False
