"""Questions of a coding agent to its user, against a scripted daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tieline_protocol.bus import Bus
from tieline_protocol.errors import Code, Refused
from tieline_streams import turn
from tieline_streams.config import Limits

from tests.support import streams
from tests.support.agentctl import Agentctl, complete, event
from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer
from tests.support.streams import Frontend

ASK = "mcp.ask_user_question"
QUESTION = {
    "id": "q1",
    "prompt": "Which DB?",
    "title": "DB",
    "options": [
        {"label": "Postgres", "description": "server", "option_id": "q1_opt1"},
        {"label": "SQLite", "description": "file", "option_id": "q1_opt2"},
    ],
}


@pytest.fixture
async def daemon() -> AsyncIterator[Agentctl]:
    async with Agentctl() as scripted:
        yield scripted


@pytest.fixture
async def user(
    nats_server: NatsServer, bus: Bus, daemon: Agentctl, tmp_path: Path
) -> AsyncIterator[Frontend]:
    limits = Limits(turn=turn.Limits(cancel=0.3, disconnected=20), heartbeat=0.2, slow_retry=0.1)
    async with streams.running(nats_server.url, streams.executors(daemon, tmp_path), limits):
        frontend = Frontend(bus)
        await frontend.open()
        yield frontend


async def asked(user: Frontend, daemon: Agentctl) -> str:
    """A question, once the user sees it."""
    payload = {"session_id": "sess-41", "questions": [QUESTION], "context": "new project"}
    id = daemon.request(ASK, payload)
    entry = {"question_id": id, "context": "new project", "questions": [QUESTION]}
    await user.until("agent", "questions", open=[entry])
    return id


async def answered(user: Frontend, id: str, option: str = "q1_opt2") -> dict[str, Any]:
    answers = [{"question_id": "q1", "selected_options": [option]}]
    return await user.command("question.answer", {"question_id": id, "answers": answers})


async def code_of(work: Any) -> Code:
    with pytest.raises(Refused) as caught:
        await work
    return caught.value.code


async def last(user: Frontend) -> list[Any]:
    """What is open by the newest event of the log."""
    found: list[Any] = (await user.events("agent", "questions"))[-1]["open"]
    return found


async def nothing_is_open(user: Frontend) -> bool:
    async def closed() -> bool:
        return await last(user) == []

    return bool(await eventually(closed))


async def rejected(daemon: Agentctl, id: str) -> str:
    """Why the agent gets no answer."""
    payload = (await daemon.reply(id))["payload"]
    assert payload["answers"] == []
    assert payload["rejected"] is True
    return str(payload["reject_reason"])


async def test_a_question_is_shown_answered_and_closed_in_all_tabs(user: Frontend, daemon: Agentctl) -> None:
    id = await asked(user, daemon)

    assert await answered(user, id) == {}
    assert (await daemon.reply(id))["payload"] == {
        "answers": [{"question_id": "q1", "selected_options": ["q1_opt2"]}]
    }
    assert await nothing_is_open(user)


async def test_only_the_first_answer_counts(user: Frontend, daemon: Agentctl) -> None:
    id = await asked(user, daemon)
    await answered(user, id)

    assert await code_of(answered(user, id, "q1_opt1")) is Code.CONFLICT
    assert await code_of(answered(user, "nothing")) is Code.NOT_FOUND
    assert len(daemon.replies(id)) == 1


@pytest.mark.parametrize(
    "fields",
    [{}, {"answers": []}, {"answers": {"q1": "q1_opt2", "q9": "x"}}, {"answers": 5}, {"rejected": 1}],
)
async def test_an_answer_to_something_else_is_refused_and_the_question_stays_open(
    user: Frontend, daemon: Agentctl, fields: dict[str, Any]
) -> None:
    id = await asked(user, daemon)

    assert await code_of(user.command("question.answer", {"question_id": id, **fields})) is Code.BAD_REQUEST
    assert len(await last(user)) == 1
    assert not daemon.replies(id)


async def test_a_user_may_decline(user: Frontend, daemon: Agentctl) -> None:
    id = await asked(user, daemon)
    await user.command("question.answer", {"question_id": id, "rejected": True})

    assert await rejected(daemon, id) == "the user does not want to answer"


async def test_the_agent_reads_why_a_user_declined(user: Frontend, daemon: Agentctl) -> None:
    id = await asked(user, daemon)
    declined = {"question_id": id, "rejected": True, "reject_reason": "ask me after lunch"}
    await user.command("question.answer", declined)

    assert await rejected(daemon, id) == "ask me after lunch"


async def test_an_agent_that_gives_up_closes_its_question(user: Frontend, daemon: Agentctl) -> None:
    id = await asked(user, daemon)

    assert await daemon.ask("mcp.clarification_timeout", {"session_id": "sess-41"}) == {}
    assert await nothing_is_open(user)
    assert await code_of(answered(user, id)) is Code.CONFLICT


async def test_a_question_and_its_withdrawal_in_one_packet_leave_nothing_open(
    user: Frontend, daemon: Agentctl
) -> None:
    generation = (await user.command("agent.prompt", {"text": "x"}))["generation"]
    envelope = {"type": "request", "action": ASK, "payload": {"questions": [QUESTION]}}
    withdrawal = {"type": "request", "action": "mcp.clarification_timeout", "payload": {}}
    daemon.agent[-1].send(
        {"id": "m-1", **envelope},
        {"id": "m-2", **withdrawal},
        {"id": "m-3", **envelope},
        complete(generation),
    )
    await rejected(daemon, "m-1")
    await rejected(daemon, "m-3")

    assert await nothing_is_open(user)


async def test_the_end_of_its_turn_closes_a_question(user: Frontend, daemon: Agentctl) -> None:
    generation = (await user.command("agent.prompt", {"text": "x"}))["generation"]
    id = await asked(user, daemon)
    daemon.agent[-1].send(complete(generation))

    assert await rejected(daemon, id) == "the turn has ended"
    assert await nothing_is_open(user)


async def test_a_prompt_that_waits_behind_the_turn_and_is_refused_closes_nothing(
    user: Frontend, daemon: Agentctl
) -> None:
    await user.command("agent.prompt", {"text": "x"})
    id = await asked(user, daemon)
    daemon.script.answers["agent.prompt"] = Exception("INTERNAL_ERROR")
    await code_of(user.command("agent.prompt", {"text": "y", "queue": True}))
    await user.until("agent", "turn", generation=2, state="ended")

    assert await answered(user, id) == {}


async def test_a_cancelled_turn_closes_a_question(user: Frontend, daemon: Agentctl) -> None:
    await user.command("agent.prompt", {"text": "x"})
    id = await asked(user, daemon)
    await user.command("agent.cancel")

    assert await rejected(daemon, id) == "the turn has ended"


async def test_an_agent_that_exits_outside_a_turn_closes_its_question(
    user: Frontend, daemon: Agentctl
) -> None:
    id = await asked(user, daemon)
    daemon.agent[-1].send(event("error", error="Agent process exited with code 1", data={"exit_code": 1}))

    assert await rejected(daemon, id) == "the agent has exited"


@pytest.mark.parametrize("action", ["agent.session.new", "agent.session.load", "agent.session.reset"])
async def test_a_new_session_of_the_agents_closes_a_question(
    user: Frontend, daemon: Agentctl, action: str
) -> None:
    id = await asked(user, daemon)
    await user.command(action)

    assert await rejected(daemon, id)
    assert await nothing_is_open(user)


async def test_a_session_that_is_closed_closes_its_question_before_the_socket(
    user: Frontend, daemon: Agentctl
) -> None:
    id = await asked(user, daemon)
    await user.command("session.close")

    assert await rejected(daemon, id) == "the session has ended"
    assert await nothing_is_open(user)


async def test_a_question_outlives_its_socket_and_is_answered_over_the_next_one(
    user: Frontend, daemon: Agentctl
) -> None:
    id = await asked(user, daemon)
    first = daemon.agent[-1]
    first.abort()
    await eventually(lambda: daemon.agent[-1] is not first)
    await answered(user, id)
    await daemon.reply(id)

    assert not first.of("response")
    assert len(daemon.agent[-1].of(ASK)) == 1


async def test_an_answer_given_while_the_daemon_is_away_reaches_it_when_it_is_back(
    user: Frontend, daemon: Agentctl
) -> None:
    id = await asked(user, daemon)
    daemon.script.refuse["agent"] = (503, {"error": "away"})
    daemon.agent[-1].abort()
    await user.until("agent", "connection", stream="agent", state="waiting")
    await answered(user, id)

    assert await nothing_is_open(user)
    assert not daemon.replies(id)
    daemon.script.refuse.clear()
    assert (await daemon.reply(id))["payload"]["answers"]


@pytest.mark.parametrize("questions", [None, [], [{"prompt": "no id"}], [QUESTION, QUESTION]])
async def test_a_question_that_cannot_be_asked_is_an_error_for_the_agent(
    user: Frontend, daemon: Agentctl, questions: Any
) -> None:
    reply = await daemon.reply(daemon.request(ASK, {"questions": questions}))

    assert reply["payload"]["code"] == "BAD_REQUEST"
    assert await nothing_is_open(user)
