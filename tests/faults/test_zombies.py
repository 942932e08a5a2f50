"""A streams process that sleeps beyond its lease and wakes up: it does no harm, and what it was given is not missed.

Witnesses are the daemon (what is written to its sockets, and when they are closed) and a link before the broker (what
the sleeper publishes).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest
from tieline_protocol import jetstream, subjects
from tieline_protocol.bus import Bus
from tieline_protocol.errors import TielineError

from tests.support.eventually import eventually
from tests.support.nats_link import NatsLink
from tests.support.nats_server import NatsServer
from tests.support.process import Process
from tests.support.scripted_daemon import ScriptedDaemon
from tests.support.streams import Frontend

Replica = Callable[..., Process]


def put_to_sleep(process: Process) -> None:
    """SIGSTOP; returns once all of its threads stand still."""
    process.signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


async def owned(user: Frontend) -> bool:
    """Whether somebody answers for the session."""
    try:
        return bool(await user.command("session.get", budget_ms=1_000))
    except TielineError:
        return False


async def texts(user: Frontend) -> list[str]:
    return [one["text"] for one in await user.events("agent", "message_chunk")]


async def _sleep_and_wake(
    bus: Bus, broker: NatsServer, daemon: ScriptedDaemon, replica: Replica, lease: int, asleep: float
) -> float:
    """The whole story; returns how long the sleeper's sockets stayed open once it was awake."""
    user = Frontend(bus)
    options = ("--lease-seconds", str(lease))
    async with (
        NatsLink(broker.port) as link,
        replica("sleeper", link.url, *options) as sleeper,
    ):
        await user.open()
        await user.command("agent.prompt", {"text": "x"})
        daemon.text("one ")
        await user.until("agent", "message_chunk")
        old = (daemon.agent[0], daemon.workspace[0])
        async with replica("successor", broker.url, *options):
            put_to_sleep(sleeper)
            slept = time.monotonic()
            daemon.text("given to the sleeper ")  # nobody else is there
            await eventually(lambda: len(daemon.agent) == 2 and len(daemon.workspace) == 2, 3 * lease + 10)
            taken = time.monotonic() - slept
            await eventually(lambda: owned(user), 10)
            daemon.text(*(f"{n} " for n in range(10)))
            await user.command("shell.input", {"data": "ls\n"})
            await eventually(lambda: time.monotonic() - slept > asleep, asleep + 5, every=0.1)

            mark, written = link.mark(), [len(socket.raw) for socket in old]
            awake = time.monotonic()
            sleeper.signal(signal.SIGCONT)
            await eventually(lambda: all(socket.closed.is_set() for socket in old))
            closed = time.monotonic() - awake
            await eventually(
                lambda: link.sent("$KV.tieline_processes.", since=mark), 15
            )  # it has a lease again
            await user.command("shell.input", {"data": "pwd\n"})
            daemon.text("last")
            daemon.finish()
            await user.until("agent", "turn", state="ended")
            stolen = len(daemon.given_to(0)) - 1  # the first was given to it while it was awake
            await eventually(lambda: _told(user, stolen), 10)
            log = await user.log("agent")
        harm = link.sent("tieline.event.", "_INBOX.", since=mark)

    print(
        f"\nasleep {asleep:.0f} s: taken over after {taken:.1f} s, sockets closed {closed * 1000:.0f} ms after SIGCONT"
    )
    assert harm == []
    assert [len(socket.raw) for socket in old] == written
    assert [frame["data"] for frame in daemon.workspace[1].of("shell_input")] == ["ls\n", "pwd\n"]
    assert daemon.prompts() == ["x"]
    assert [one.event["state"] for one in log if one.event["type"] == "turn"].count("ended") == 1
    assert [one.event["clean"] for one in log if one.event["type"] == "epoch"] == [True, False]
    assert await texts(user) == ["one ", *(one["text"] for one in daemon.given_to(1) if "text" in one)]
    return closed


async def _told(user: Frontend, missing: int) -> bool:
    """Whether gaps say how many events went into the sleeper's socket."""
    gaps = await user.events("agent", "gap")
    told = sum(one["events"] for one in gaps)
    assert told <= missing
    return told == missing


@pytest.mark.timeout(60)
@pytest.mark.parametrize("mode", ["field", "ours"])
async def test_a_service_that_slept_does_no_harm(
    bus: Bus, nats_server: NatsServer, daemon: ScriptedDaemon, replica: Replica, mode: str
) -> None:
    """A viewer reads on with the next owner; what went into the sleeper's socket is told by a gap, with its number."""
    # A shorter lease might lapse on a machine at full load: then the session is the sleeper's again, with good reason.
    assert await _sleep_and_wake(bus, nats_server, daemon, replica, lease=5, asleep=0) < 2


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["field", "ours"])
async def test_a_service_that_slept_for_20_s_does_no_harm(
    bus: Bus, nats_server: NatsServer, daemon: ScriptedDaemon, replica: Replica, mode: str
) -> None:
    """The real limits; the broker has dropped the sleeper's connections meanwhile."""
    assert await _sleep_and_wake(bus, nats_server, daemon, replica, lease=8, asleep=20) < 1


@pytest.mark.timeout(60)
async def test_a_service_that_slept_with_nobody_to_replace_it_goes_on_as_a_new_owner(
    bus: Bus, nats_server: NatsServer, daemon: ScriptedDaemon, replica: Replica
) -> None:
    """Nobody took the session, and nobody could know that: new sockets, a new epoch, and a gap for what it found."""
    user = Frontend(bus)
    processes = jetstream.Bucket(bus, subjects.BUCKET_PROCESSES)

    async def expired() -> bool:
        return not await processes.entries(subjects.process_key("*"))

    async with replica("alone", nats_server.url, "--lease-seconds", "2") as alone:
        await user.open()
        await user.command("agent.prompt", {"text": "x"})
        daemon.text("one ")
        await user.until("agent", "message_chunk")
        put_to_sleep(alone)
        await eventually(expired, 15)
        daemon.text("given to the sleeper ")
        alone.signal(signal.SIGCONT)
        await eventually(lambda: len(daemon.agent) == len(daemon.workspace) == 2, 15)
        daemon.text("two")
        daemon.finish()
        await user.until("agent", "turn", 10, state="ended", reason="end_turn")
        await eventually(lambda: _told(user, 1), 10)

    assert await texts(user) == ["one ", "two"]
    assert [one["clean"] for one in await user.events("agent", "epoch")] == [True, False]
    assert daemon.prompts() == ["x"]
