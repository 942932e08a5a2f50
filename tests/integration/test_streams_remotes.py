"""Coding agents use their user's remotes: a scripted daemon, the real streams and remotes services, a real NATS."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tieline_protocol import subjects
from tieline_protocol.bus import Bus, BusSettings, Received
from tieline_protocol.messages import answer
from tieline_protocol.service import Common, running
from tieline_remotes import app as remotes_app
from tieline_remotes.config import Config
from tieline_streams.config import Limits

from tests.support import streams
from tests.support.agentctl import Agentctl, event
from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer
from tests.support.remote_owner import RemoteOwner, remote_owner
from tests.support.streams import USER, Frontend

ECHO = {
    "name": "echo",
    "description": "Gives back what it gets",
    "parameters": {"type": "object", "properties": {"value": {}}, "required": ["value"]},
}
TASK = {"surface": "kanban-task"}


@contextlib.asynccontextmanager
async def remotes(nats_server: NatsServer) -> AsyncIterator[None]:
    config = Config(BusSettings(nats_server.url, "remotes"), drain=0.2)
    async with running(Common("remotes"), remotes_app.make(config)):
        yield


@pytest.fixture
async def owner(nats_server: NatsServer, bus: Bus) -> AsyncIterator[RemoteOwner]:
    """A gateway's end, with the user's remotes `browser` and `private`, and somebody else's `browser`."""
    async with remotes(nats_server), remote_owner(bus) as made:
        await made.connect(USER, "browser", [ECHO], "c1")
        await made.connect(USER, "private", [ECHO], "c2")
        await made.connect("eve", "shared", [ECHO], "c3")
        yield made


@pytest.fixture
async def daemon() -> AsyncIterator[Agentctl]:
    async with Agentctl() as scripted:
        yield scripted


@pytest.fixture
async def service(nats_server: NatsServer, daemon: Agentctl, tmp_path: Path) -> AsyncIterator[None]:
    limits = Limits(heartbeat=0.2, slow_retry=0.2)
    async with streams.running(nats_server.url, streams.executors(daemon, tmp_path), limits):
        yield


@pytest.fixture
async def user(service: None, owner: RemoteOwner, bus: Bus) -> Frontend:
    """A user whose session was opened with `browser`, and with `shared`, which is somebody else's."""
    frontend = Frontend(bus)
    await frontend.open(remotes=["browser", "shared"])
    return frontend


def invocation(**fields: Any) -> dict[str, Any]:
    return {
        "plugin_id": "browser",
        "local_name": "echo",
        "arguments": {"value": 1},
        "invocation_id": "i-1",
        **TASK,
        **fields,
    }


def invoke(daemon: Agentctl, **fields: Any) -> str:
    return daemon.request("mcp.invoke_plugin_tool", invocation(**fields))


# What is offered


async def test_an_agent_is_offered_the_functions_of_the_remotes_that_its_session_names(
    user: Frontend, daemon: Agentctl
) -> None:
    """B11: neither the user's other remotes nor anybody else's."""
    listed = await daemon.ask("mcp.list_plugin_tools", TASK)

    assert listed["revision"] == 1
    assert isinstance(listed["generation"], str)
    assert listed["tools"] == [
        {
            "plugin_id": "browser",
            "plugin_display_name": "browser",
            "local_name": "echo",
            "exposed_name": "browser__echo",
            "description": ECHO["description"],
            "surfaces": ["kanban-task"],
            "input_schema": ECHO["parameters"],
            "read_only_hint": False,
            "destructive_hint": True,
            "idempotent_hint": False,
            "open_world_hint": True,
        }
    ]


async def test_an_agent_that_asks_again_is_offered_what_is_there_by_then(
    user: Frontend, daemon: Agentctl, owner: RemoteOwner
) -> None:
    first = await daemon.ask("mcp.list_plugin_tools", TASK)
    again = await daemon.ask("mcp.list_plugin_tools", TASK)
    await owner.connect(USER, "shared", [{**ECHO, "name": "täb.open"}], "c4")
    second = await daemon.ask("mcp.list_plugin_tools", TASK)
    (added,) = [tool for tool in second["tools"] if tool["plugin_id"] == "shared"]
    call = invoke(daemon, plugin_id=added["plugin_id"], local_name=added["local_name"])
    called = await owner.calls.get()

    assert again == first
    assert second["generation"] == first["generation"]
    assert second["revision"] == first["revision"] + 1
    assert added["exposed_name"].isascii()
    assert called.payload["function"] == "täb.open"
    await called.result("done")
    await daemon.reply(call)


async def test_a_session_without_remotes_offers_none(
    service: None, bus: Bus, daemon: Agentctl, owner: RemoteOwner
) -> None:
    await Frontend(bus).open()

    assert (await daemon.ask("mcp.list_plugin_tools", TASK))["tools"] == []


async def test_without_the_remotes_service_an_agent_waits_less_than_the_daemons_limit(
    service: None, bus: Bus, daemon: Agentctl
) -> None:
    await Frontend(bus).open(remotes=["browser"])
    started = time.monotonic()
    listed = await daemon.ask("mcp.list_plugin_tools", TASK)

    assert time.monotonic() - started < 2
    assert listed["tools"] == []
    assert await daemon.ask("mcp.invoke_plugin_tool", invocation()) == {
        "text": "error: unavailable: the remotes service is not there",
        "is_error": True,
    }


async def test_an_agent_that_asks_while_the_remotes_service_starts_gets_its_tools(
    service: None, bus: Bus, daemon: Agentctl
) -> None:
    async def resolved(received: Received) -> bytes:
        return answer({"remotes": [{"remotename": "browser", "functions": [ECHO]}], "missing": []})

    await Frontend(bus).open(remotes=["browser"])
    asked = daemon.request("mcp.list_plugin_tools", TASK)
    server = await bus.serve(subjects.rpc("remotes", "resolve", USER), resolved)
    reply = await daemon.reply(asked)
    await server.close()

    assert [tool["local_name"] for tool in reply["payload"]["tools"]] == ["echo"]


async def test_a_remotes_service_that_hangs_does_not_hang_the_agent(
    service: None, bus: Bus, daemon: Agentctl
) -> None:
    async def silent(received: Received) -> None:
        return None

    await Frontend(bus).open(remotes=["browser"])
    server = await bus.serve(subjects.rpc("remotes", "resolve", USER), silent)
    started = time.monotonic()
    listed = await daemon.ask("mcp.list_plugin_tools", TASK)
    await server.close()

    assert time.monotonic() - started < 2
    assert listed["tools"] == []


async def test_whatever_else_a_daemon_asks_is_unknown(user: Frontend, daemon: Agentctl) -> None:
    reply = await daemon.reply(daemon.request("mcp.create_task", {"title": "x"}))

    assert reply["type"] == "error"
    assert reply["payload"]["code"] == "UNKNOWN_ACTION"


# Calls


@pytest.mark.parametrize(
    ("result", "text"), [("hello", "hello"), ("", '""'), (0, "0"), (None, "null"), ([], "[]")]
)
async def test_an_agent_reads_what_the_function_returned(
    user: Frontend, daemon: Agentctl, owner: RemoteOwner, result: Any, text: str
) -> None:
    """B62."""
    call = invoke(daemon)
    called = await owner.calls.get()
    await called.result(result)

    assert called.args == {"value": 1}
    assert called.connection == "c1"
    assert (await daemon.reply(call))["payload"] == {"text": text, "is_error": False}


async def test_an_object_is_there_as_such_too(user: Frontend, daemon: Agentctl, owner: RemoteOwner) -> None:
    call = invoke(daemon)
    await (await owner.calls.get()).result({"title": "ü"})

    assert (await daemon.reply(call))["payload"] == {
        "text": '{"title":"ü"}',
        "structured_content": {"title": "ü"},
        "is_error": False,
    }


async def test_a_result_of_five_megabytes_arrives(
    user: Frontend, daemon: Agentctl, owner: RemoteOwner
) -> None:
    call = invoke(daemon)
    await (await owner.calls.get()).result("x" * 4_900_000)

    assert len((await daemon.reply(call))["payload"]["text"]) == 4_900_000


async def test_a_function_that_fails_is_a_text_for_the_agent(
    user: Frontend, daemon: Agentctl, owner: RemoteOwner
) -> None:
    """B58."""
    call = invoke(daemon)
    await (await owner.calls.get()).error("no such tab")

    assert (await daemon.reply(call))["payload"] == {
        "text": "error: internal: no such tab",
        "is_error": True,
    }


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"plugin_id": "private"}, "not_found"),
        ({"plugin_id": "shared"}, "not_found"),
        ({"plugin_id": "nothing"}, "not_found"),
        ({"local_name": "nothing"}, "not_found"),
        ({"local_name": None}, "bad_request"),
        ({"arguments": {}}, "invalid_arguments"),
        ({"arguments": "value=1"}, "invalid_arguments"),
    ],
)
async def test_a_call_that_cannot_be_made_is_a_text_for_the_agent(
    user: Frontend, daemon: Agentctl, owner: RemoteOwner, fields: dict[str, Any], code: str
) -> None:
    """B01: a remote that the session does not name, or that is somebody else's, is none."""
    reply = (await daemon.reply(invoke(daemon, **fields)))["payload"]

    assert reply["is_error"] is True
    assert reply["text"].startswith(f"error: {code}: ")
    assert owner.calls.empty()


async def test_calls_run_side_by_side_and_hold_up_nothing_else(
    user: Frontend, daemon: Agentctl, owner: RemoteOwner
) -> None:
    slow, quick = invoke(daemon, arguments={"value": "slow"}), invoke(daemon, arguments={"value": "quick"})
    called = {one.args["value"]: one for one in [await owner.calls.get(), await owner.calls.get()]}
    await called["quick"].result("quick")

    assert (await daemon.reply(quick))["payload"]["text"] == "quick"
    daemon.agent[-1].send(event("message_chunk", session_id="acp-1", text="meanwhile"))
    await user.until("agent", "message_chunk", text="meanwhile")
    assert await user.command("agent.stderr") == {"lines": []}
    assert not daemon.replies(slow)
    await called["slow"].result("slow")
    assert (await daemon.reply(slow))["payload"]["text"] == "slow"


async def test_a_flood_of_calls_is_bounded(user: Frontend, daemon: Agentctl, owner: RemoteOwner) -> None:
    calls = [invoke(daemon) for _ in range(80)]
    refused = await eventually(lambda: [one for one in calls if daemon.replies(one)])

    assert all("busy" in daemon.replies(one)[0]["payload"]["text"] for one in refused)
    await eventually(lambda: owner.calls.qsize() + len([c for c in calls if daemon.replies(c)]) == 80)


async def test_a_request_that_comes_twice_runs_once(
    user: Frontend, daemon: Agentctl, owner: RemoteOwner
) -> None:
    call = invoke(daemon)
    called = await owner.calls.get()
    daemon.request("mcp.invoke_plugin_tool", invocation(), id=call)
    await called.result("once")
    await daemon.reply(call)
    daemon.request("mcp.invoke_plugin_tool", invocation(), id=call)
    await eventually(lambda: len(daemon.replies(call)) == 2)

    assert [one["payload"]["text"] for one in daemon.replies(call)] == ["once", "once"]
    assert owner.calls.empty()


# Ends


async def test_a_lost_agent_socket_ends_its_calls_and_the_agent_is_told_on_the_next_one(
    user: Frontend, daemon: Agentctl, owner: RemoteOwner
) -> None:
    """B63: the daemon waits without a time limit, so every request is answered."""
    call = invoke(daemon)
    called = await owner.calls.get()
    first = daemon.agent[-1]
    first.abort()
    await asyncio.wait_for(called.cancelled.wait(), 2)
    reply = await daemon.reply(call)

    assert reply["payload"]["is_error"] is True
    assert reply["payload"]["text"].startswith("error: cancelled: ")
    assert daemon.agent[-1] is not first
    assert daemon.replies(call)[0] in daemon.agent[-1].frames


async def test_a_reply_that_may_have_been_lost_with_its_socket_is_sent_again(
    user: Frontend, daemon: Agentctl, owner: RemoteOwner
) -> None:
    call = invoke(daemon)
    await (await owner.calls.get()).result("hello")
    await daemon.reply(call)
    daemon.agent[-1].abort()
    await eventually(lambda: len(daemon.replies(call)) == 2)

    assert [one["payload"]["text"] for one in daemon.replies(call)] == ["hello", "hello"]


async def test_a_session_that_is_closed_ends_its_calls(
    user: Frontend, daemon: Agentctl, owner: RemoteOwner
) -> None:
    call = invoke(daemon)
    called = await owner.calls.get()
    await user.command("session.close")

    assert called.cancelled.is_set()
    assert (await daemon.reply(call))["payload"]["text"].startswith("error: cancelled: ")


async def test_a_new_agent_session_ends_the_calls_of_the_old_one(
    user: Frontend, daemon: Agentctl, owner: RemoteOwner
) -> None:
    call = invoke(daemon)
    called = await owner.calls.get()
    await user.command("agent.session.new")
    await asyncio.wait_for(called.cancelled.wait(), 2)

    assert (await daemon.reply(call))["payload"]["is_error"] is True
