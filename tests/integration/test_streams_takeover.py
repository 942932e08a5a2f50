"""Several streams processes: one owner for each session, and somebody who goes on when it stops, dies or sleeps."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tieline_protocol.bus import Bus
from tieline_protocol.errors import TielineError
from tieline_protocol.lease import Terms
from tieline_streams.config import Executors, Limits

from tests.support import streams
from tests.support.agentctl import Agentctl, complete, event
from tests.support.eventually import eventually
from tests.support.nats_link import NatsLink
from tests.support.nats_server import NatsServer
from tests.support.process import Process
from tests.support.streams import Frontend

Replica = Callable[[str], Process]


@pytest.fixture
async def daemon() -> AsyncIterator[Agentctl]:
    async with Agentctl() as scripted:
        yield scripted


@pytest.fixture
def known(daemon: Agentctl, tmp_path: Path) -> Executors:
    return streams.executors(daemon, tmp_path)


@pytest.fixture
def replica(nats_server: NatsServer, known: Executors, tmp_path: Path) -> Replica:
    """A process as people run it, that a test may kill."""
    file = tmp_path / "executors.json"
    file.write_text(known.model_dump_json())

    def make(name: str, *options: str) -> Process:
        args = ["--executors-file", str(file), "--nats-url", nats_server.url, "--log-format", "text"]
        return Process("tieline_streams", tmp_path / "run", [*args, *options], name=name, timeout=15)

    return make


async def openings(user: Frontend) -> list[dict]:
    return await user.events("agent", "epoch")


async def text(user: Frontend) -> str:
    return "".join(one["text"] for one in await user.events("agent", "message_chunk"))


async def answers(user: Frontend, action: str = "session.get", **payload: object) -> dict | None:
    """What the owner answers, once there is one."""
    try:
        return await user.command(action, payload, budget_ms=2_000)
    except TielineError:
        return None


def prompts(daemon: Agentctl) -> list[str]:
    return [frame["payload"]["text"] for stream in daemon.agent for frame in stream.of("agent.prompt")]


@pytest.mark.timeout(40)
async def test_a_service_that_stops_hands_its_sessions_over(
    bus: Bus, daemon: Agentctl, replica: Replica
) -> None:
    """B67: the turn goes on with the next owner, and a watcher reads one text with one end."""
    user = Frontend(bus)
    async with replica("first") as first:
        await user.open()
        await user.command("agent.prompt", {"text": "x", "client_message_id": "m1"})
        daemon.agent[0].send(event("message_chunk", text="one "))
        await user.until("agent", "message_chunk")
        async with replica("second"):
            daemon.agent[0].send(event("message_chunk", text="two "))
            first.signal(signal.SIGTERM)
            began = time.monotonic()
            await eventually(lambda: len(daemon.agent) == 2, timeout=10)
            took = time.monotonic() - began
            assert await first.wait() == 0
            daemon.agent[1].send(event("message_chunk", text="three"), complete(1))
            await user.until("agent", "turn", state="ended")
            again = await eventually(
                lambda: answers(user, "agent.prompt", text="x", client_message_id="m1"), timeout=5
            )
            log = await user.log("agent")
    turns = [one.event["state"] for one in log if one.event["type"] == "turn"]
    first_log, second_log = [one.event for one in log if one.event["type"] == "epoch"]

    print(f"takeover after SIGTERM: {took * 1000:.0f} ms")
    assert took < 7  # nobody has waited for the lease, which lasts 8 s
    assert await text(user) == "one two three"
    assert turns.count("ended") == 1
    assert again == {"generation": 1}
    assert prompts(daemon) == ["x"]
    assert (first_log["clean"], second_log["clean"]) == (True, True)
    assert second_log["last"] == max(
        one.cursor.offset for one in log if one.cursor.epoch == second_log["previous"]
    )
    assert (daemon.agent[0].close_code, daemon.workspace[0].close_code) == (1000, 1000)
    assert [one["state"] for one in await user.events("agent", "session")] == ["opening", "ready"]


@pytest.mark.timeout(60)
async def test_a_service_that_is_killed_is_replaced(bus: Bus, daemon: Agentctl, replica: Replica) -> None:
    """B67, B69: within 10 s; the turn goes on, the permission is still there and is answered once."""
    user = Frontend(bus)
    asked = {
        "request_id": "r1",
        "pending_id": "p1",
        "permission_title": "May I?",
        "permission_options": [{"option_id": "allow", "name": "Allow", "kind": "allow_once"}],
    }
    listed = {"request_id": "r1", "pending_id": "p1", "title": "May I?", "status": "pending"}
    daemon.script.answers["agent.permissions.list"] = {"permissions": [listed], "total": 1}
    daemon.script.answers["agent.permissions.resolve"] = {"status": "resolved"}
    async with replica("first") as first:
        await user.open()
        await user.command("agent.prompt", {"text": "x"})
        daemon.agent[0].send(event("message_chunk", text="one "), event("permission_request", **asked))
        await user.until("agent", "permissions", open=[asked])
        async with replica("second"):
            await first.kill()
            began = time.monotonic()
            await eventually(lambda: len(daemon.agent) == 2, timeout=15)
            took = time.monotonic() - began
            await eventually(lambda: answers(user), timeout=10)
            state = (await user.events("agent", "permissions"))[-1]
            decided = await user.command(
                "agent.permissions.respond",
                {"pending_id": "p1", "request_id": "r1", "option_id": "allow"},
            )
            daemon.agent[1].send(event("message_chunk", text="two"), complete(1))
            await user.until("agent", "turn", state="ended")
    turns = [one["state"] for one in await user.events("agent", "turn")]

    print(f"takeover after SIGKILL: {took * 1000:.0f} ms")
    assert took < 11
    assert state["open"] == [asked]
    assert decided == {"status": "resolved"}
    assert len([one for stream in daemon.agent for one in stream.of("agent.permissions.resolve")]) == 1
    assert await text(user) == "one two"
    assert turns.count("ended") == 1
    assert prompts(daemon) == ["x"]
    assert [one["clean"] for one in await openings(user)] == [True, False]


@pytest.mark.long
@pytest.mark.timeout(60)
async def test_a_service_that_slept_uses_nothing_closes_its_sockets_and_says_what_it_found(
    bus: Bus, daemon: Agentctl, replica: Replica
) -> None:
    """Its successor tells of it in the logs, each frame once."""
    user = Frontend(bus)
    async with replica("first") as owner:
        await user.open()
        await user.command("agent.prompt", {"text": "x"})
        sockets = [daemon.agent[0], daemon.workspace[0]]
        async with replica("second"):
            owner.signal(signal.SIGSTOP)
            await eventually(lambda: len(daemon.agent) == 2, timeout=15)
            before = [len(socket.raw) for socket in sockets]
            for socket in sockets:
                socket.send(*[event("message_chunk", text="stolen")] * 3)
            owner.signal(signal.SIGCONT)
            began = time.monotonic()
            await eventually(lambda: all(socket.closed.is_set() for socket in sockets), timeout=5)
            took = time.monotonic() - began
            gaps = [
                await user.until(log, "gap", reason="owner_lost", events=3, timeout=10)
                for log in ("agent", "workspace")
            ]
            daemon.agent[1].send(event("message_chunk", text="two"), complete(1))
            await user.until("agent", "turn", state="ended")
            log = await user.log("agent")
            told = [await user.events(log, "gap") for log in ("agent", "workspace")]

    print(f"sockets of a process that slept are closed after {took * 1000:.0f} ms")
    assert took < 2
    assert [len(socket.raw) for socket in sockets] == before
    assert await text(user) == "two"
    assert max(one.cursor.epoch for one in log) == log[-1].cursor.epoch
    assert told == [[gap] for gap in gaps]


@pytest.mark.timeout(40)
async def test_many_replicas_at_once_take_a_session_once(
    bus: Bus, nats_server: NatsServer, daemon: Agentctl, known: Executors, replica: Replica
) -> None:
    """B84: one owner, one pair of sockets, one load."""
    user = Frontend(bus)
    async with replica("first") as first:
        await user.open()
        async with (
            streams.running(nats_server.url, known),
            streams.running(nats_server.url, known),
            streams.running(nats_server.url, known),
        ):
            await first.stop()
            await eventually(lambda: answers(user), timeout=10)
            await asyncio.sleep(0.5)  # whoever else would take it has had the time
            seen = (len(daemon.agent), len(daemon.workspace), len(await openings(user)))

    assert seen == (2, 2, 2)


@pytest.mark.timeout(40)
async def test_a_session_whose_instance_went_while_nobody_owned_it_fails_with_its_turn(
    bus: Bus, nats_server: NatsServer, daemon: Agentctl, known: Executors
) -> None:
    """B67 (c)."""
    user = Frontend(bus)
    async with streams.running(nats_server.url, known):
        await user.open()
        await user.command("agent.prompt", {"text": "x"})
    await daemon.forget_instances()
    async with streams.running(nats_server.url, known):
        failed = await user.until("agent", "session", state="failed", timeout=10)
    turns = [one for one in await user.events("agent", "turn") if one["state"] == "ended"]

    assert "gone" in failed["reason"]
    assert [one["reason"] for one in turns] == ["disconnected"]


@pytest.mark.parametrize("somebody_else", [False, True])
@pytest.mark.timeout(40)
async def test_what_was_read_while_the_broker_was_away_beyond_the_lease_is_published_or_told_as_missing(
    bus: Bus, nats_server: NatsServer, daemon: Agentctl, known: Executors, somebody_else: bool
) -> None:
    """B35: the owner that comes back publishes it first; a successor says that something may be missing."""
    user = Frontend(bus)
    limits = Limits(lease=Terms(ttl=2), sweep=0.5)
    async with contextlib.AsyncExitStack() as stack:
        link = await stack.enter_async_context(NatsLink(nats_server.port))
        await stack.enter_async_context(streams.running(link.url, known, limits))
        await user.open()
        await user.command("agent.prompt", {"text": "x"})
        daemon.agent[0].send(event("message_chunk", text="one "))
        await user.until("agent", "message_chunk")
        await link.down()
        daemon.agent[0].send(event("message_chunk", text="two "), event("plan", plan_content="three"))
        daemon.workspace[0].send({"type": "git_commit", "git_commit": {"sha": "1"}})
        if somebody_else:
            await stack.enter_async_context(streams.running(nats_server.url, known, limits))
            await eventually(lambda: len(daemon.agent) == 2, timeout=10)
        await eventually(daemon.agent[0].closed.is_set, timeout=10)
        await link.up()
        mark = link.mark()
        await eventually(lambda: len(daemon.agent) == 2, timeout=15)
        daemon.agent[1].send(event("message_chunk", text="four"), complete(1))
        await user.until("agent", "turn", state="ended", timeout=15)
        await eventually(lambda: link.sent("$KV.tieline_processes.", since=mark), timeout=15)
        said = await text(user)
        log = await user.log("agent")
        commits = await user.events("workspace", "git_commit")
        published = link.sent("tieline.event.", since=mark)

    kept = not somebody_else
    assert [one.event["clean"] for one in log if one.event["type"] == "epoch"] == [True, kept]
    assert said == ("one two four" if kept else "one four")
    assert len(commits) == len([one for one in log if one.event["type"] == "plan"]) == int(kept)
    assert bool(published) is kept
    second = next(
        one for one in log if one.event["type"] == "epoch" and one.cursor.epoch == log[-1].cursor.epoch
    )
    before = [one.cursor for one in log if one.cursor.epoch < log[-1].cursor.epoch]
    assert (second.event["previous"], second.event["last"]) == (before[-1].epoch, before[-1].offset)
    assert len([one for one in log if one.event["type"] == "turn" and one.event["state"] == "ended"]) == 1
