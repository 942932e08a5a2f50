"""A real coding agent calls its user's function: the example agent in the real daemon, streams, remotes, NATS."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tieline_protocol.bus import Bus, BusSettings
from tieline_protocol.service import Common, running
from tieline_remotes import app as remotes_app
from tieline_remotes.config import Config
from tieline_streams.config import Executors

from tests.support import streams
from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer
from tests.support.remote_owner import RemoteOwner, remote_owner
from tests.support.streams import USER, Frontend

pytestmark = pytest.mark.timeout(60)

PARAMETERS = {"type": "object", "properties": {"value": {}}, "required": ["value"]}
ECHO = {"name": "echo", "description": "Gives back what it gets", "parameters": PARAMETERS}


@pytest.fixture
async def owner(nats_server: NatsServer, bus: Bus) -> AsyncIterator[RemoteOwner]:
    config = Config(BusSettings(nats_server.url, "remotes"), drain=0.2)
    async with running(Common("remotes"), remotes_app.make(config)), remote_owner(bus) as made:
        await made.connect(USER, "browser", [ECHO, {**ECHO, "name": "täb öffnen"}])
        yield made


@pytest.fixture
async def user(
    nats_server: NatsServer, bus: Bus, owner: RemoteOwner, tmp_path: Path
) -> AsyncIterator[Frontend]:
    local = {"kind": "local", "root": str(tmp_path / "work")}
    agent = {"command": [sys.executable, "-m", "tieline_agentctl.example_agent"]}
    known = Executors.model_validate({"executors": {"local": local}, "agents": {"example": agent}})
    async with streams.running(nats_server.url, known):
        frontend = Frontend(bus)
        await frontend.open(remotes=["browser"])
        try:
            yield frontend
        finally:  # a local daemon outlives the service; it ends with its session
            await frontend.command("session.close")


async def ended(user: Frontend, generation: int) -> str:
    """What the agent has said by the end of the turn, over all turns."""
    await user.until("agent", "turn", timeout=20, generation=generation, state="ended")
    return "".join(one.get("text", "") for one in await user.events("agent", "message_chunk"))


async def test_the_agent_calls_functions_of_its_users_browser(user: Frontend, owner: RemoteOwner) -> None:
    await user.command("agent.prompt", {"text": "tools"})
    names = (await ended(user, 1)).split()
    (odd,) = [name for name in names if name.startswith("browser__") and name != "browser__echo"]
    await user.command(
        "agent.prompt", {"text": f'say \\n\ntool browser__echo {{"value": [1]}}\ntool {odd} {{"value": 2}}'}
    )
    first = await owner.calls.get()
    await first.result("the title")
    second = await owner.calls.get()
    await second.error("no such tab")
    said = await ended(user, 2)

    assert (first.payload["function"], first.args) == ("echo", {"value": [1]})
    assert (second.payload["function"], second.args) == ("täb öffnen", {"value": 2})
    assert said.endswith("\nthe titleerror: internal: no such tab")
    statuses = [one.get("tool_status") for one in await user.events("agent", "tool_update")]
    assert statuses.count("complete") == 1
    assert statuses.count("error") == 1


async def test_a_function_that_is_registered_while_the_session_runs_can_be_called(
    user: Frontend, owner: RemoteOwner
) -> None:
    await owner.connect(USER, "browser", [{**ECHO, "name": "later"}])
    await user.command("agent.prompt", {"text": 'tool browser__later {"value": null}'})
    await (await owner.calls.get()).result(0)

    assert await ended(user, 1) == "0"


async def test_the_agent_asks_its_user_and_goes_on_with_the_answer(user: Frontend) -> None:
    question = {"prompt": "Which DB?", "options": [{"label": "Postgres"}, {"label": "SQLite"}]}
    asked = json.dumps({"questions": [question], "context": "new project"})
    await user.command("agent.prompt", {"text": f"tool ask_user_question_kandev {asked}"})
    entry = await _open(user)
    (shown,) = entry["questions"]
    answers = {shown["id"]: shown["options"][1]["option_id"]}
    await user.command("question.answer", {"question_id": entry["question_id"], "answers": answers})
    said = json.loads(await ended(user, 1))

    assert (entry["context"], shown["prompt"]) == ("new project", "Which DB?")
    assert said["answers"][0]["selected_labels"] == ["SQLite"]
    assert await eventually(lambda: _nothing_open(user))


async def test_a_cancelled_turn_takes_its_question_from_the_screen(user: Frontend) -> None:
    question = {"prompt": "Which DB?", "options": [{"label": "Postgres"}, {"label": "SQLite"}]}
    asked = json.dumps({"questions": [question]})
    await user.command("agent.prompt", {"text": f"tool ask_user_question_kandev {asked}"})
    await _open(user)
    await user.command("agent.cancel")
    await ended(user, 1)

    assert await eventually(lambda: _nothing_open(user))


async def _open(user: Frontend) -> dict[str, Any]:
    async def found() -> dict[str, Any] | None:
        return next((one["open"][0] for one in await user.events("agent", "questions") if one["open"]), None)

    entry: dict[str, Any] = await eventually(found, 15)
    return entry


async def _nothing_open(user: Frontend) -> bool:
    return (await user.events("agent", "questions"))[-1]["open"] == []
