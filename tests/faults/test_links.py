"""The way to a daemon breaks: cut, away for a while, ended in mid-frame or in good order. What a user sees goes on."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence

import pytest
from tieline_protocol.bus import Bus
from tieline_streams.config import Executors, Limits

from tests.support import oracle, streams
from tests.support.agentctl import event
from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer
from tests.support.oracle import Seen
from tests.support.scripted_daemon import ScriptedDaemon
from tests.support.streams import Frontend

AGENT, WORKSPACE = b"/api/v1/agent/stream", b"/api/v1/workspace/stream"
pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def limits() -> Limits:
    """Those of the product; a test may parametrize them."""
    return Limits()


@pytest.fixture
async def user(
    nats_server: NatsServer, bus: Bus, known: Executors, limits: Limits
) -> AsyncIterator[Frontend]:
    async with streams.running(nats_server.url, known, limits):
        frontend = Frontend(bus)
        await frontend.open()
        yield frontend


async def seen(user: Frontend, log: str = "agent") -> list[Seen]:
    return [Seen(one.cursor.epoch, one.cursor.offset, one.event) for one in await user.log(log)]


async def wrong(user: Frontend, said: Sequence[str]) -> list[str]:
    """What a viewer of the agent's log has to complain about."""
    log = await seen(user)
    text = oracle.of_one_text(oracle.pieces(log, "message_chunk", "text"), "".join(said))
    return [*oracle.in_order(log), *text, *oracle.one_end_each(log)]


async def gaps(user: Frontend, log: str = "agent") -> list[dict]:
    return await user.events(log, "gap")


async def said(user: Frontend, log: str, state: str) -> int:
    return sum(one["state"] == state for one in await user.events(log, "connection"))


def both_up(daemon: ScriptedDaemon) -> bool:
    return len(daemon.open(daemon.agent)) == len(daemon.open(daemon.workspace)) == 1


@pytest.mark.parametrize("rst", [True, False])
async def test_both_sockets_are_up_within_3_s_after_the_network_returns(
    user: Frontend, daemon: ScriptedDaemon, rst: bool
) -> None:
    """What the agent said meanwhile comes, once and in order, and the turn goes on to its one end."""
    await user.command("agent.prompt", {"text": "x"})
    told = [f"{n} " for n in range(30)]
    daemon.text(*told[:10])
    await user.until("agent", "message_chunk", text="9 ")
    await daemon.link.down(rst=rst)
    await eventually(lambda: not daemon.open(daemon.agent))
    daemon.text(*told[10:20])
    await user.until("agent", "connection", state="waiting", attempt=3)
    await daemon.link.up()
    began = time.monotonic()
    await eventually(lambda: both_up(daemon))
    took = time.monotonic() - began
    daemon.text(*told[20:])
    daemon.finish()
    await user.until("agent", "turn", state="ended", reason="end_turn")

    print(f"\nboth sockets up {took * 1000:.0f} ms after the network returned")
    assert took <= 3
    assert await wrong(user, told) == []
    assert [one["text"] for one in await user.events("agent", "message_chunk")] == told


async def _up_after_all_attempts(user: Frontend, daemon: ScriptedDaemon) -> float:
    await user.command("agent.prompt", {"text": "x"})
    await daemon.link.down()
    await user.until("agent", "connection", 12, state="down")
    await user.until("workspace", "connection", 12, state="down")
    daemon.text("still ")
    await daemon.link.up()
    began = time.monotonic()
    await eventually(lambda: both_up(daemon), 12)
    took = time.monotonic() - began
    daemon.text("here")
    daemon.finish()
    await user.until("agent", "turn", state="ended", reason="end_turn")
    for log in ("agent", "workspace"):
        await eventually(lambda log=log: _twice_up(user, log))
        assert await said(user, log, "down") == 1
    assert await wrong(user, ["still ", "here"]) == []
    print(
        f"\nboth sockets up {took * 1000:.0f} ms after the network returned, all five attempts having failed"
    )
    return took


async def _twice_up(user: Frontend, log: str) -> bool:
    return await said(user, log, "up") == 2


@pytest.mark.parametrize("limits", [Limits(slow_retry=1)])
async def test_a_network_that_was_away_for_long_is_found_again(
    user: Frontend, daemon: ScriptedDaemon, limits: Limits
) -> None:
    """`down` is said once, then `up`; the turn that was open goes on."""
    assert await _up_after_all_attempts(user, daemon) <= 3


@pytest.mark.long
async def test_a_network_that_was_away_for_long_is_found_again_within_9_s(
    user: Frontend, daemon: ScriptedDaemon
) -> None:
    """The real waits: one attempt every 5 s."""
    assert await _up_after_all_attempts(user, daemon) <= 9


@pytest.mark.parametrize("size", [1, 3, 60, 700, 5_000])
async def test_an_event_that_was_cut_in_mid_frame_is_told_as_missing(
    user: Frontend, daemon: ScriptedDaemon, size: int
) -> None:
    """A viewer reads the text up to there, hears of a gap, and reads on: never a text with a hole in it."""
    await user.command("agent.prompt", {"text": "x"})
    told = [f"line {n}\n" for n in range(60)]
    daemon.text(*told[:10])
    await user.until("agent", "message_chunk", text=told[9])
    daemon.link.cut_after(size, only=AGENT)
    daemon.text(*told[10:50])
    await eventually(lambda: len(daemon.agent) == 2)
    daemon.text(*told[50:])
    daemon.finish()
    await user.until("agent", "turn", state="ended", reason="end_turn")

    assert await wrong(user, told) == []
    assert len(daemon.workspace) == 1  # its socket has nothing to do with it
    assert [one["reason"] for one in await gaps(user)] == ["daemon"]


@pytest.mark.parametrize("size", [1, 60, 700])
async def test_shell_output_that_was_cut_in_mid_frame_is_read_again_from_the_daemon(
    user: Frontend, daemon: ScriptedDaemon, size: int
) -> None:
    """The screen shows all of it, once; the agent's socket has nothing to do with it."""
    lines = [f"line {n}\r\n" for n in range(60)]
    daemon.write("".join(lines[:10]))
    await user.until("workspace", "shell_output")
    daemon.link.cut_after(size, only=WORKSPACE)
    for line in lines[10:40]:
        daemon.write(line)
    await eventually(lambda: len(daemon.workspace) == 2)
    for line in lines[40:]:
        daemon.write(line)
    await eventually(lambda: _screen(user, "".join(lines)))

    assert await gaps(user, "workspace") == []
    assert oracle.in_order(await seen(user, "workspace")) == []
    assert len(daemon.agent) == 1


async def _screen(user: Frontend, wanted: str) -> bool:
    shown = "".join(one["data"] for one in await user.events("workspace", "shell_output"))
    assert wanted.startswith(shown)
    return shown == wanted


async def test_shell_output_that_the_daemon_keeps_no_more_is_told_as_missing(
    user: Frontend, daemon: ScriptedDaemon
) -> None:
    """More than the daemon remembers was written while its socket was away: the screen goes on after a gap."""
    daemon.write("before\r\n")
    await user.until("workspace", "shell_output")
    await daemon.link.down()
    await eventually(lambda: not daemon.open(daemon.workspace))
    for n in range(3_000):
        daemon.write(f"line {n}\r\n")
    await daemon.link.up()
    await eventually(lambda: both_up(daemon))
    daemon.write("after\r\n")
    await eventually(lambda: _shows(user, "after"))

    log = await seen(user, "workspace")
    shown = oracle.pieces(log, "shell_output", "data")
    assert shown[0] == "before\r\n"
    assert oracle.of_one_text(shown, daemon.shell) == []
    assert shown[-1].endswith("line 2999\r\nafter\r\n")


def process(status: str) -> dict:
    about = {"session_id": "s", "process_id": "p1", "kind": "dev", "command": "make", "working_dir": "/w"}
    return {"type": "process_status", "timestamp": 1, "process_status": {**about, "status": status}}


def output(data: str) -> dict:
    told = {"session_id": "s", "process_id": "p1", "kind": "dev", "stream": "stdout", "data": data}
    return {"type": "process_output", "timestamp": 1, "process_output": told}


async def test_output_of_processes_that_nobody_heard_is_told_as_missing(
    user: Frontend, daemon: ScriptedDaemon
) -> None:
    """The daemon says it to whoever is there: between what was heard before and after stands a gap."""
    listed = {"id": "p1", "kind": "dev", "command": "make", "working_dir": "/w", "status": "running"}
    daemon.script.http["GET", "/api/v1/processes"] = lambda _: (200, [listed])
    daemon.show(process("running"), output("before"))
    await user.until("workspace", "process_output")
    await daemon.link.down()
    await eventually(lambda: not daemon.open(daemon.workspace))
    daemon.show(output("unheard"))
    await daemon.link.up()
    await eventually(lambda: both_up(daemon))
    daemon.show(output("after"))
    await eventually(lambda: _outputs(user, 2))
    await user.command("shell.buffer")
    told = [one for one in await user.events("workspace") if one["type"] in ("process_output", "gap")]

    assert [one.get("event_type") or one["process_output"]["data"] for one in told] == [
        "before",
        "process_output",
        "after",
    ]


async def _outputs(user: Frontend, wanted: int) -> bool:
    return len(await user.events("workspace", "process_output")) == wanted


async def _shows(user: Frontend, wanted: str) -> bool:
    return any(wanted in one["data"] for one in await user.events("workspace", "shell_output"))


@pytest.mark.parametrize("code", [1000, 1001, 1011])
async def test_a_close_in_good_order_in_mid_turn_is_a_loss_like_any_other(
    user: Frontend, daemon: ScriptedDaemon, code: int
) -> None:
    """The turn goes on over the next socket, its permission still open; nothing is missing, so no gap is told."""
    await user.command("agent.prompt", {"text": "x"})
    asked = {
        "request_id": "r1",
        "pending_id": "p1",
        "permission_title": "May I?",
        "permission_options": [{"option_id": "allow", "name": "Allow", "kind": "allow_once"}],
    }
    listed = {"request_id": "r1", "pending_id": "p1", "title": "May I?", "status": "pending"}
    daemon.script.answers["agent.permissions.list"] = {"permissions": [listed], "total": 1}
    daemon.script.answers["agent.permissions.resolve"] = {"status": "resolved"}
    daemon.text("one ")
    daemon.say(event("permission_request", **asked))
    await user.until("agent", "permissions", open=[asked])
    daemon.agent[0].close(code)
    await eventually(lambda: not daemon.open(daemon.agent))
    daemon.text("two ")
    await eventually(lambda: _twice_up(user, "agent"))  # until then an answer is refused
    allowed = {"pending_id": "p1", "request_id": "r1", "option_id": "allow"}
    assert await user.command("agent.permissions.respond", allowed) == {"status": "resolved"}
    daemon.text("three")
    daemon.finish()
    await user.until("agent", "turn", state="ended", reason="end_turn")

    assert await wrong(user, ["one ", "two ", "three"]) == []
    assert await gaps(user) == []
    assert daemon.prompts() == ["x"]
    assert [one["state"] for one in await user.events("agent", "session")] == ["opening", "ready"]
