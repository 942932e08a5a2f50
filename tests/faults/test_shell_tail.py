"""What is known of a shell's output by whoever was not there when it was written."""

from __future__ import annotations

import asyncio

import pytest
from tieline_protocol import subjects
from tieline_protocol.bus import Bus
from tieline_streams.config import Executors

from tests.support import streams
from tests.support.agentctl import Answer, Asked, Stream
from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer
from tests.support.scripted_daemon import ScriptedDaemon
from tests.support.streams import Frontend

OTHERS = 6_000  # messages, more than are looked through at first


@pytest.mark.timeout(30)
async def test_output_that_was_seen_is_not_seen_again_however_much_others_have_written(
    bus: Bus, nats_server: NatsServer, daemon: ScriptedDaemon, known: Executors
) -> None:
    user = Frontend(bus)

    async def screen() -> str:
        return "".join(one["data"] for one in await user.events("workspace", "shell_output"))

    async def write(line: str) -> None:
        daemon.write(line)
        await eventually(lambda: _ends(line))

    async def _ends(line: str) -> bool:
        return (await screen()).endswith(line)

    async with streams.running(nats_server.url, known):
        await user.open()
        for number in range(40):
            daemon.write(f"line {number} of the first owner\n")
        await write("the last line before the flood\n")
        for _ in range(OTHERS):
            await bus.publish(subjects.event(user.user, "another", "workspace", "shell_output"), b"x")
        await write("1\n")
    async with streams.running(nats_server.url, known):
        await eventually(lambda: len(daemon.workspace) == 2)
        await write("a line for the next owner\n")
        gaps = await user.events("workspace", "gap")

    assert await screen() == daemon.shell
    assert gaps == []


async def test_what_a_shell_says_before_anybody_listens_is_shown_once(
    bus: Bus, nats_server: NatsServer, daemon: ScriptedDaemon, known: Executors
) -> None:
    """Its first prompt comes with the agent's start, before there is a socket; it is part of the screen."""
    user = Frontend(bus)
    daemon.shell = "$ "
    async with streams.running(nats_server.url, known):
        await user.open()
        await user.until("workspace", "shell_output")
        screen = await user.command("shell.buffer")
        await daemon.link.down()
        await eventually(lambda: not daemon.open(daemon.workspace))
        await daemon.link.up()
        await eventually(lambda: len(daemon.open(daemon.workspace)) == 1)
        daemon.write("ls\r\n$ ")
        await eventually(lambda: _all(user, daemon.shell))
        gaps = await user.events("workspace", "gap")

    assert screen["data"] == "$ "
    assert gaps == []


async def test_what_a_daemon_answers_of_a_shell_before_its_socket_has_told_it_is_shown_once(
    bus: Bus,
    nats_server: NatsServer,
    daemon: ScriptedDaemon,
    known: Executors,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer by HTTP overtakes what was written to the socket before it, as it does on a busy machine."""
    user = Frontend(bus)
    connected = daemon.connected

    def silent(name: str, stream: Stream) -> None:
        stream.answer_pings = name == "agent"
        connected(name, stream)

    def overtaking(asked: Asked) -> Answer:
        asyncio.get_running_loop().call_later(0.2, overtaken, daemon.workspace[-1])
        return 200, {"data": daemon.shell}

    def overtaken(stream: Stream) -> None:
        stream.answer_pings = True
        pongs = [{"type": "pong", "timestamp": 1} for _ in stream.of("ping")]
        stream.send({"type": "shell_output", "data": daemon.shell}, *pongs)

    daemon.shell = "$ "
    monkeypatch.setattr(daemon, "connected", silent)
    daemon.script.http["GET", "/api/v1/shell/buffer"] = overtaking
    async with streams.running(nats_server.url, known):
        await user.open()
        await eventually(lambda: daemon.workspace and daemon.workspace[-1].answer_pings)
        daemon.write("ls\r\n$ ")
        await eventually(lambda: _all(user, daemon.shell))


async def _all(user: Frontend, wanted: str) -> bool:
    shown = "".join(one["data"] for one in await user.events("workspace", "shell_output"))
    assert wanted.startswith(shown)
    return shown == wanted
