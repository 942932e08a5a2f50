"""What every process of a running system says of itself, and whether its numbers are true."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families
from tieline import Client, Remote

from tests.support.eventually import eventually
from tests.support.frontend import Frontend
from tests.support.system import System

pytestmark = [pytest.mark.timeout(60), pytest.mark.asyncio(loop_scope="module")]

SERVICES = ("gateway", "streams", "remotes", "agent")
CONNECTIONS = {
    "gateway": {"gateway", "gateway-workspace", "gateway-reads"},
    "streams": {"streams", "streams-agent", "streams-workspace"},
    "remotes": {"remotes"},
    "agent": {"agent", "agent-threads"},
}

Numbers = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[System]:
    async with System(tmp_path_factory.mktemp("watched")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False) as client:
        yield client


def place(system: System, name: str) -> str:
    """Where a process answers probes."""
    facts = json.loads((system.data / "run" / f"{name}.ready").read_text())
    return str(facts.get("health_url") or facts["url"])


class Told:
    """The numbers of one process, asked anew each time."""

    def __init__(self, http: httpx.AsyncClient, url: str) -> None:
        self._http = http
        self._url = url

    async def all(self) -> Numbers:
        answer = await self._http.get(f"{self._url}/metrics")
        assert answer.status_code == 200
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }

    async def value(self, name: str, **labels: str) -> float:
        return (await self.all()).get((name, frozenset(labels.items())), 0)

    async def until(self, name: str, value: float, **labels: str) -> None:
        async def is_so() -> bool:
            return await self.value(name, **labels) == value

        await eventually(is_so, 20, 0.05)


@pytest.fixture
def told(system: System, http: httpx.AsyncClient) -> Any:
    return lambda name: Told(http, place(system, name))


@pytest.mark.parametrize("name", [*SERVICES, "agentctl"])
async def test_every_process_lives_is_ready_and_tells_numbers(
    system: System, http: httpx.AsyncClient, told: Any, name: str
) -> None:
    base = place(system, name)
    live, ready = await http.get(f"{base}/livez"), await http.get(f"{base}/readyz")
    numbers = await told(name).all()

    assert (live.status_code, live.text) == (200, "ok\n")
    assert (ready.status_code, ready.json()["ready"], ready.json()["reasons"]) == (200, True, {})
    assert numbers["process_resident_memory_bytes", frozenset()] > 1e6


@pytest.mark.parametrize("name", SERVICES)
async def test_a_service_tells_of_its_loop_its_lease_and_each_connection(told: Any, name: str) -> None:
    numbers = await told(name).all()
    of = frozenset({("service", name)})
    up = {
        dict(labels)["connection"]
        for (what, labels), value in numbers.items()
        if what == "tieline_bus_connected" and value == 1
    }
    [age] = [value for (what, _), value in numbers.items() if what == "tieline_lease_age_seconds"]
    [held] = [value for (what, _), value in numbers.items() if what == "tieline_lease_held"]

    assert numbers["tieline_service_ready", of] == 1
    for way in ("in", "out"):
        assert numbers["tieline_bus_messages_total", frozenset({("connection", name), ("way", way)})] > 0
    assert 0 <= numbers["tieline_loop_lag_seconds", of] < 30
    assert up == CONNECTIONS[name]
    assert 0 <= age < 7
    assert held == 1


async def test_the_numbers_of_a_session_are_true(system: System, told: Any) -> None:
    gateway, streams, daemon = told("gateway"), told("streams"), told("agentctl")
    ended = await streams.value("tieline_streams_turns_ended_total", reason="end_turn")
    async with Frontend(system.url, system.token()) as front:
        session = await front.open(workspace="counted")
        await front.watch(session)
        await gateway.until("tieline_gateway_connections", 1)
        await gateway.until("tieline_gateway_watched_logs", 1, log="agent")
        await streams.until("tieline_streams_sessions", 1, state="ready")
        for stream in ("agent", "workspace"):
            await streams.until("tieline_streams_connections", 1, stream=stream, state="up")
        await daemon.until("tieline_agentctl_agents", 1, state="running")

        await front.ask("agent.prompt", session, text="ask May I?")
        await streams.until("tieline_streams_permissions_open", 1)
        assert await streams.value("tieline_streams_turns", state="waiting_permission") == 1
        await daemon.until("tieline_agentctl_busy_agents", 1)
        await front.allow(session)
        await front.until_ended()
        await streams.until("tieline_streams_turns_ended_total", ended + 1, reason="end_turn")
        numbers = await streams.all()
        assert ("tieline_streams_turns", frozenset({("state", "running")})) not in numbers
        assert (
            numbers[
                "tieline_streams_commands_total", frozenset({("action", "agent.prompt"), ("outcome", "ok")})
            ]
            >= 1
        )
        assert numbers["tieline_log_open", frozenset({("log", "agent")})] == 1
        await streams.until("tieline_log_unconfirmed_batches", 0, log="agent")
        assert await gateway.value("tieline_gateway_delivered_batches_total", log="agent") > 0
        await front.ask("session.close", session)
        await streams.until("tieline_log_open", 0, log="agent")
    await gateway.until("tieline_gateway_connections", 0)
    assert await gateway.value("tieline_gateway_requests_total", action="agent.prompt", outcome="ok") >= 1


async def test_the_numbers_of_a_chat_and_its_calls_are_true(system: System, told: Any) -> None:
    agent, remotes, gateway = told("agent"), told("remotes"), told("gateway")
    before = {name: await agent.value(name) for name in ("tieline_model_first_delta_seconds_count",)}
    waits: list[str] = []
    box = Remote("box")

    @box.function
    async def look(name: str) -> str:
        """Look into the box.

        name: Who looks
        """
        waits.append(name)
        await remotes.until("tieline_remote_calls_in_flight", 1)
        await agent.until("tieline_runs_running", 1)
        assert await gateway.value("tieline_gateway_calls_in_flight", side="owner") == 1
        return "nothing"

    async with Client(system.url, system.token()) as client, client.serve(box):
        thread = (await client.request("thread.create", {}))["thread_id"]
        async with await client.subscribe_thread(thread) as events:
            resource = {"kind": "system", "subkind": "remote", "content": "box"}
            message = {
                "thread_id": thread,
                "content": 'call box.look {"name": "ann"}',
                "resources": [resource],
            }
            await client.request("thread.message", message)
            async for event in events:
                if event.type == "run" and event.body["state"] == "ended":
                    break
    assert waits == ["ann"]
    await remotes.until("tieline_remote_calls_in_flight", 0)
    await agent.until("tieline_runs_running", 0)
    await agent.until("tieline_agent_runs_total", 1, reason="answer")
    assert await remotes.value("tieline_remote_calls_total", outcome="answered") == 1
    assert await remotes.value("tieline_remote_call_seconds_count") == 1
    assert await agent.value("tieline_model_requests_total", outcome="ok") == 2
    assert await agent.value("tieline_agent_tool_seconds_count", outcome="ok") == 1
    assert await agent.value("tieline_agent_tokens_total", direction="in") > 0
    first = "tieline_model_first_delta_seconds_count"
    assert await agent.value(first) == before[first] + 2


async def test_what_the_broker_does_not_confirm_shows_and_the_service_lives(
    system: System, http: httpx.AsyncClient, told: Any
) -> None:
    streams = told("streams")
    [nats] = [pid for pid, command in system.processes().items() if "nats-server" in command]
    async with Frontend(system.url, system.token()) as front:
        session = await front.open(workspace="held-up")
        await front.watch(session)
        await front.ask("agent.prompt", session, text="wait 0.3\nsay hello\nwait 0.2\nsay again")
        os.kill(nats, signal.SIGSTOP)
        try:

            async def waits() -> bool:
                numbers = await streams.all()
                of = frozenset({("log", "agent")})
                return numbers["tieline_log_unconfirmed_events", of] > 0 and (
                    numbers["tieline_log_unconfirmed_seconds", of] > 0.1
                )

            await eventually(waits, 20, 0.05)
            assert (await http.get(f"{place(system, 'streams')}/livez")).status_code == 200
        finally:
            os.kill(nats, signal.SIGCONT)
        await front.until_ended(timeout=30)
        await streams.until("tieline_log_unconfirmed_events", 0, log="agent")
        assert await streams.value("tieline_log_unconfirmed_seconds", log="agent") == 0
        await front.ask("session.close", session)


async def test_no_label_is_an_id_or_a_name_that_somebody_chose(told: Any) -> None:
    """The tests before this one have had users, sessions, threads, remotes and functions."""
    for name in (*SERVICES, "agentctl"):
        values = {
            value
            for (sample, labels) in await told(name).all()
            for label, value in labels
            if sample.startswith("tieline_") and label != "le"
        }
        assert not values & {"dev", "box", "look", "ann", "counted", "held-up"}, name
        assert all(len(value) < 40 for value in values), name


@pytest.mark.parametrize("name", [*SERVICES, "agentctl"])
async def test_every_line_of_a_log_is_json_of_one_form(system: System, name: str) -> None:
    lines = (system.data / "logs" / f"{name}.log").read_text().splitlines()
    told = [json.loads(line) for line in lines]

    assert told
    assert all(line.keys() >= {"timestamp", "level", "event", "service"} for line in told)
    assert {line["service"] for line in told} == {name}
