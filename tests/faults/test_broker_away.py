"""The broker dies, comes back, or loses what it was about to say: what agents said meanwhile reaches the user."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import httpx
import psutil
import pytest
from tieline_protocol import jetstream, subjects
from tieline_protocol import streams as logs
from tieline_protocol.bus import Bus
from tieline_protocol.errors import TielineError
from tieline_protocol.metrics import REPEATS
from tieline_streams.config import Executors

from tests.support import oracle, streams
from tests.support.eventually import eventually
from tests.support.gateway import Raw, frontend, gateway
from tests.support.nats_link import NatsLink
from tests.support.nats_server import NatsServer
from tests.support.oracle import Seen
from tests.support.owner import owning
from tests.support.process import Process
from tests.support.scripted_daemon import ScriptedDaemon
from tests.support.streams import Frontend

Replica = Callable[..., Process]
PACE = 0.02  # s between pieces of an answer and of output
PIECE = 20_000  # bytes of shell output: 1 MB/s


class Talk:
    """An agent that talks and a shell that floods, without a pause."""

    def __init__(self, daemon: ScriptedDaemon, process: Process) -> None:
        self._daemon = daemon
        self._process = psutil.Process(process.pid)
        self.said: list[str] = []
        self.peak = 0

    async def pieces(self, count: int) -> None:
        for _ in range(count):
            number = len(self.said)
            self.said.append(f"{number} ")
            self._daemon.text(self.said[-1])
            self._daemon.write("".join(f"{number:06} {line:03}\r\n" for line in range(PIECE // 12)))
            self.peak = max(self.peak, self._process.memory_info().rss)
            await asyncio.sleep(PACE)


async def seen(user: Frontend, log: str) -> list[Seen]:
    return [Seen(one.cursor.epoch, one.cursor.offset, one.event) for one in await user.log(log)]


async def _ended(user: Frontend) -> bool:
    try:
        return any(one["state"] == "ended" for one in await user.events("agent", "turn"))
    except TielineError:
        return False  # it is just coming back


async def _away(
    bus: Bus, broker: NatsServer, daemon: ScriptedDaemon, replica: Replica, seconds: float
) -> float:
    """The broker is killed in mid-turn and away; returns how long after its return all was delivered."""
    user = Frontend(bus)
    async with replica("streams", broker.url) as process:
        await user.open()
        await user.command("agent.prompt", {"text": "x"})
        talk = Talk(daemon, process)
        await talk.pieces(50)
        before = talk.peak
        await broker.kill()
        await talk.pieces(int(seconds / PACE))
        await broker.start()
        began = time.monotonic()
        await talk.pieces(10)
        daemon.finish()
        await eventually(lambda: _ended(user), 60, every=0.1)
        took = time.monotonic() - began
        await eventually(lambda: _shown(user, daemon), 15, every=0.2)
        agent, workspace = await seen(user, "agent"), await seen(user, "workspace")
    grown = (talk.peak - before) / 1e6
    gaps = sum(one.type == "gap" for one in workspace)

    print(
        f"\nbroker away for {seconds:.0f} s: all delivered {took:.1f} s after its return;"
        f" memory grew by {grown:.0f} MB; {gaps} gaps in the output"
    )
    assert oracle.in_order(agent) == oracle.in_order(workspace) == []
    assert oracle.one_end_each(agent) == []
    assert oracle.pieces(agent, "message_chunk", "text") == ["".join(talk.said)]
    shown = oracle.pieces(workspace, "shell_output", "data")
    assert oracle.of_one_text(shown, daemon.shell) == []
    assert len(shown) > 1  # something is missing, and is told
    assert grown < 60
    return took


async def _shown(user: Frontend, daemon: ScriptedDaemon) -> bool:
    """Whether the screen ends as the shell's output does."""
    last = (await user.events("workspace", "shell_output"))[-1]["data"]
    return daemon.shell.endswith(last[-PIECE // 2 :])


@pytest.mark.timeout(90)
@pytest.mark.parametrize("mode", ["ours"])
async def test_what_an_agent_says_while_the_broker_is_away_comes_when_it_is_back(
    bus: Bus, nats_server: NatsServer, daemon: ScriptedDaemon, replica: Replica, mode: str
) -> None:
    """B35: every word once; of the shell's output the end, and a gap that says how much is missing."""
    assert await _away(bus, nats_server, daemon, replica, 8) <= 5


@pytest.mark.long
@pytest.mark.timeout(200)
@pytest.mark.parametrize("mode", ["ours"])
async def test_a_minute_without_a_broker_loses_no_word_of_an_agent(
    bus: Bus, nats_server: NatsServer, daemon: ScriptedDaemon, replica: Replica, mode: str
) -> None:
    """B35: memory stays bounded, and all is there within 5 s of the return."""
    assert await _away(bus, nats_server, daemon, replica, 60) <= 5


# What the broker says is lost


@pytest.mark.timeout(40)
@pytest.mark.parametrize("wait", [0.5, 2.5])
async def test_lost_acknowledgements_cost_nothing_but_time(
    bus: Bus, nats_server: NatsServer, daemon: ScriptedDaemon, known: Executors, wait: float
) -> None:
    """All that was published is stored, and nobody could say so: a viewer reads every word once, in order."""
    async with (
        NatsLink(nats_server.port) as link,
        streams.running(link.url, known),
    ):
        user = Frontend(bus)
        await user.open()
        await user.command("agent.prompt", {"text": "x"})
        repeats, said = REPEATS._value.get(), []

        async def talk(seconds: float) -> None:
            for _ in range(int(seconds / PACE)):
                said.append(f"{len(said)} ")
                daemon.text(said[-1])
                await asyncio.sleep(PACE)

        await talk(0.2)
        link.lose("down")
        await talk(wait)
        link.cut()
        link.thaw()
        await talk(0.2)
        daemon.finish()
        began = time.monotonic()
        await user.until("agent", "turn", 15, state="ended", reason="end_turn")
        took = time.monotonic() - began
        log = await seen(user, "agent")

    print(f"\nacknowledgements lost for {wait:g} s: all stored {took:.1f} s after the end of the turn")
    assert took < 5
    assert REPEATS._value.get() > repeats
    assert oracle.in_order(log) == oracle.one_end_each(log) == []
    assert oracle.pieces(log, "message_chunk", "text") == ["".join(said)]


@pytest.mark.timeout(40)
async def test_a_request_under_way_fails_with_the_broker_and_later_ones_succeed(
    bus: Bus, nats_server: NatsServer, daemon: ScriptedDaemon, known: Executors
) -> None:
    """B33: whoever waits is told at once, not after 30 s; the turn that streams meanwhile comes to its end."""
    async with streams.running(nats_server.url, known):
        user = Frontend(bus)
        await user.open()
        await user.command("agent.prompt", {"text": "x"})
        daemon.script.answers["agent.stderr"] = None
        pending = asyncio.create_task(user.command("agent.stderr", budget_ms=30_000))
        await eventually(lambda: daemon.agent[0].of("agent.stderr"))
        daemon.text("one ")
        began = time.monotonic()
        await nats_server.kill()
        with pytest.raises(TielineError):
            await pending
        told = time.monotonic() - began
        daemon.text("two")
        await nats_server.start()
        await eventually(lambda: _answers(user))
        for _ in range(20):
            assert (await user.command("session.get"))["session_id"] == user.session
        daemon.finish()
        await user.until("agent", "turn", 10, state="ended", reason="end_turn")
        log = await seen(user, "agent")

    assert told < 2
    assert oracle.pieces(log, "message_chunk", "text") == ["one two"]


async def _answers(user: Frontend) -> bool:
    try:
        return bool(await user.command("session.get", budget_ms=1_000))
    except TielineError:
        return False


# JetStream is away, or has lost a stream


@pytest.mark.timeout(60)
async def test_a_service_without_jetstream_says_so_and_begins_once_it_is_there(
    nats_server: NatsServer, replica: Replica
) -> None:
    """B36 (a): alive, not ready, and a log that names what is missing; no loop of crashes."""
    await nats_server.stop()
    nats_server.jetstream = False
    await nats_server.start()
    service = replica("waiting", nats_server.url)
    service._ready = False
    async with service:
        await eventually(lambda: "JetStream is not there" in service.log, 20)
        assert service.code is None
        assert not service.ready_file.exists()
        nats_server.jetstream = True
        await nats_server.restart()
        await service.wait_ready()
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"{service.facts['health_url']}/readyz")).status_code == 200


@pytest.mark.timeout(60)
async def test_a_turn_that_ends_while_jetstream_is_off_ends_for_everybody(
    bus: Bus, nats_server: NatsServer, daemon: ScriptedDaemon, known: Executors
) -> None:
    """B36 (c): the end waits until it can be stored, and is told once."""
    async with streams.running(nats_server.url, known):
        user = Frontend(bus)
        await user.open()
        await user.command("agent.prompt", {"text": "x"})
        await nats_server.kill()
        nats_server.jetstream = False
        await nats_server.start()
        daemon.text("said meanwhile")
        daemon.finish()
        await bus.wait_connected()
        heard = asyncio.Event()
        subscription = await bus.subscribe(
            subjects.event(user.user, user.session, "agent", "turn"), lambda _: heard.set()
        )
        await asyncio.wait(
            [asyncio.create_task(heard.wait())], timeout=8
        )  # live viewers hear it, if anybody can
        await subscription.close()
        nats_server.jetstream = True
        await nats_server.restart()
        began = time.monotonic()
        await eventually(lambda: _ended(user), 20, every=0.1)
        took = time.monotonic() - began
        log = await seen(user, "agent")

    print(f"\nJetStream off around the end of a turn: told {took:.1f} s after its return")
    assert oracle.in_order(log) == oracle.one_end_each(log) == []
    assert oracle.pieces(log, "message_chunk", "text") == ["said meanwhile"]


@pytest.mark.timeout(40)
async def test_a_turn_ends_for_everybody_though_its_log_was_deleted_meanwhile(
    bus: Bus, nats_server: NatsServer, daemon: ScriptedDaemon, known: Executors
) -> None:
    """B36 (b): an operator's mistake. Whoever is there sees the end; once the log can be kept again, it is, and a late
    viewer is told what is gone."""
    heard: list[bytes] = []
    async with streams.running(nats_server.url, known), gateway(nats_server.url) as url:
        user = Frontend(bus)
        session = await user.open()
        await user.command("agent.prompt", {"text": "x"})
        daemon.text("one ")
        await user.until("agent", "message_chunk")
        subscription = await bus.subscribe(
            subjects.event(user.user, user.session, "agent", "complete"), lambda got: heard.append(got.data)
        )
        await jetstream.api(bus, subjects.stream_api("DELETE", subjects.stream_of("agent")))
        daemon.text("two")
        daemon.finish()
        await eventually(lambda: heard)
        await subscription.close()
        await logs.ensure(bus, logs.StreamLimits())
        await user.until("agent", "turn", 10, state="ended", reason="end_turn")
        assert await user.command("agent.prompt", {"text": "y"}) == {"generation": 2}
        async with frontend(url, user.user) as late:
            await late.ask("session.subscribe", {"session_id": session, "cursors": {"agent": "start"}})
            await late.until(lambda: "turn" in kinds(late, session), 10)
            told = kinds(late, session)

    assert told[0] == "gap"
    assert "epoch" not in told
    assert [one["text"] for one in await user.events("agent", "message_chunk")] == ["two"]
    assert daemon.prompts() == ["x", "y"]


def kinds(viewer: Raw, session: str) -> list[str]:
    return [one["event"]["type"] for one in viewer.of("agent", session)]


# What hears of events goes on


@pytest.mark.timeout(40)
async def test_a_viewer_hears_every_event_once_over_restarts_of_the_broker(nats_server: NatsServer) -> None:
    """B39: we have no consumers that a restart could lose; subscriptions and reads go on by themselves."""
    async with (
        owning(nats_server.url) as owner,
        gateway(nats_server.url) as url,
        frontend(url) as viewer,
    ):
        await viewer.ask("session.subscribe", {"session_id": "s1"})
        count = 0
        for kill in (False, True):
            await nats_server.restart(kill=kill)
            for _ in range(3):
                await eventually(lambda n=count: _emits(owner, n), 10)
                count += 1
            await viewer.until(lambda wanted=count: len(viewer.numbers()) >= wanted, 10)
        told = await jetstream.api(owner.bus, subjects.stream_api("INFO", subjects.stream_of("agent")))

    assert viewer.numbers() == list(range(count))
    assert told["state"]["consumer_count"] == 0


async def _emits(owner: object, n: int) -> bool:
    try:
        await owner.agent.emit({"type": "message_chunk", "n": n})  # type: ignore[attr-defined]
    except TielineError:
        return False
    return True
