"""What a user sees when daemons, sockets, the broker or the service itself misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tieline_protocol.bus import Bus
from tieline_protocol.errors import Code, Refused, TielineError
from tieline_protocol.metrics import DROPPED
from tieline_streams import turn
from tieline_streams.config import Executors, Limits

from tests.support import streams
from tests.support.agentctl import Agentctl, complete, event, frame, text
from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer
from tests.support.process import Process
from tests.support.streams import Frontend

LIMITS = Limits(
    turn=turn.Limits(cancel=2, disconnected=0.8, unknown=0.5, stalled=30),
    heartbeat=0.2,
    dead=0.6,
    slow_retry=0.2,
)


@pytest.fixture
async def daemon() -> AsyncIterator[Agentctl]:
    async with Agentctl() as scripted:
        yield scripted


@pytest.fixture
def known(daemon: Agentctl, tmp_path: Path) -> Executors:
    return streams.executors(daemon, tmp_path)


@pytest.fixture
async def user(nats_server: NatsServer, bus: Bus, known: Executors) -> AsyncIterator[Frontend]:
    async with streams.running(nats_server.url, known, LIMITS):
        frontend = Frontend(bus)
        await frontend.open()
        yield frontend


async def states(user: Frontend, log: str) -> list[str]:
    return [one["state"] for one in await user.events(log, "connection")]


# Frames


@pytest.mark.parametrize(
    "bad",
    [
        b"{",
        b'"text"',
        b"[]",
        b"{}",
        b'{"type":7}',
        b'{"type":"context_window","context_efficiency":NaN}',
        b'{"type":"x","v":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
async def test_a_frame_that_is_no_event_becomes_a_gap_and_nothing_else(
    user: Frontend, daemon: Agentctl, bad: bytes
) -> None:
    """B21 and B22: NaN, bad JSON and any depth are told, and the next frame works."""
    for stream, log in ((daemon.agent[0], "agent"), (daemon.workspace[0], "workspace")):
        stream.send(bad, event("zig"))
        await user.until(log, "zig")
        (gap,) = await user.events(log, "gap")
        assert gap == {"type": "gap", "reason": "invalid", "events": 1, "bytes": len(bad)}

    assert len(daemon.agent) == len(daemon.workspace) == 1


async def test_a_binary_frame_becomes_a_gap(user: Frontend, daemon: Agentctl) -> None:
    daemon.agent[0].write(frame(b'{"type":"zig"}', opcode=2))

    gap = await user.until("agent", "gap")
    assert gap["reason"] == "invalid"


async def test_bytes_that_are_no_text_end_only_their_socket(user: Frontend, daemon: Agentctl) -> None:
    """B19: invalid UTF-8 in mid-turn: that socket is dialled again and the turn goes on."""
    await user.command("agent.prompt", {"text": "x"})
    daemon.agent[0].write(frame(b"\xff\xfe"))
    await eventually(lambda: len(daemon.agent) == 2)
    assert daemon.agent[0].close_code == 1007

    daemon.agent[1].send(complete(1))
    await user.until("agent", "turn", state="ended", reason="end_turn")
    assert len(daemon.workspace) == 1

    daemon.workspace[0].write(frame(b"\xff\xfe"))
    await eventually(lambda: len(daemon.workspace) == 2)
    await eventually(lambda: _says(user, "workspace", ["connecting", "up", "waiting", "connecting", "up"]))


async def _says(user: Frontend, log: str, wanted: list[str]) -> bool:
    return await states(user, log) == wanted


async def test_lone_surrogates_pass(user: Frontend, daemon: Agentctl) -> None:
    """B20: an escaped half of an emoji is an event like any other."""
    daemon.agent[0].send(rb'{"type":"message_chunk","text":"\udc97"}', event("plan"))
    await user.until("agent", "plan")

    (chunk,) = await user.events("agent", "message_chunk")
    assert chunk["text"] == "�"
    assert await user.events("agent", "gap") == []


async def test_a_3_mb_git_status_on_every_connect_is_published_and_loops_nothing(
    user: Frontend, daemon: Agentctl
) -> None:
    """B26: a large frame right after `connected` is accepted."""
    status = {"type": "git_status", "git_status": {"files": {"a": {"diff": "x" * 3_000_000}}}}
    daemon.script.workspace_greeting.append(status)
    daemon.workspace[0].abort()

    await user.until("workspace", "git_status")
    await user.until("workspace", "connection", state="up")
    assert await user.events("workspace", "git_status") == [status]
    assert len(daemon.workspace) == 2


async def test_an_event_above_the_limit_is_a_gap(user: Frontend, daemon: Agentctl) -> None:
    """B26: 7 MiB is the most that an event can have; the socket stays."""
    daemon.workspace[0].send({"type": "git_status", "x": "x" * 7_400_000}, {"type": "zig"})
    await user.until("workspace", "zig")

    (gap,) = await user.events("workspace", "gap")
    assert (gap["reason"], gap["event_type"]) == ("too_large", "git_status")
    assert len(daemon.workspace) == 1


@pytest.mark.parametrize("pieces", [1, 2])
async def test_a_frame_above_16_mib_ends_its_socket_and_is_told(
    user: Frontend, daemon: Agentctl, pieces: int
) -> None:
    """What was not read is gone: the log says so."""
    size = 16 * 1024 * 1024 // pieces + 1
    for n in range(pieces):
        daemon.workspace[0].write(frame(b"x" * size, opcode=1 if n == 0 else 0, fin=n == pieces - 1))

    await eventually(lambda: len(daemon.workspace) == 2)
    await user.until("workspace", "connection", state="up")
    assert len(daemon.agent) == 1
    assert [one["reason"] for one in await user.events("workspace", "gap")] == ["too_large"]


async def test_a_daemon_that_floods_the_agents_socket_for_ever_fails_its_session(
    nats_server: NatsServer, bus: Bus, daemon: Agentctl, known: Executors
) -> None:
    """It is told at most five times, then somebody has to see to it."""
    user = Frontend(bus)
    async with streams.running(nats_server.url, known, replace(LIMITS, frame_bytes=65_536)):
        await user.open()
        await user.command("agent.prompt", {"text": "x"})
        daemon.script.agent_greeting = [b"x" * 65_537]
        daemon.agent[0].abort()
        failed = await user.until("agent", "session", state="failed", timeout=10)
        gaps = [one for one in await user.events("agent", "gap") if one["reason"] == "too_large"]
        ends = [one["reason"] for one in await user.events("agent", "turn") if one["state"] == "ended"]

        assert "frame above the limit, again and again" in failed["reason"]
        assert len(gaps) == len(daemon.agent) - 1 == 5
        assert ends == ["disconnected"]
        assert (await user.rpc("list"))["sessions"][0]["reason"] == failed["reason"]


async def test_a_daemon_that_floods_the_workspaces_socket_for_ever_loses_its_screen_only(
    nats_server: NatsServer, bus: Bus, daemon: Agentctl, known: Executors
) -> None:
    user = Frontend(bus)
    async with streams.running(nats_server.url, known, replace(LIMITS, frame_bytes=65_536)):
        await user.open()
        daemon.script.workspace_greeting = [b"x" * 65_537]
        daemon.workspace[0].abort()
        error = "the daemon sent a frame above the limit, again and again: it is not dialled any more"
        await user.until("workspace", "connection", state="down", error=error, timeout=10)
        await user.command("agent.prompt", {"text": "x"})
        daemon.agent[0].send(complete(1))
        await user.until("agent", "turn", state="ended", reason="end_turn")

        assert len(daemon.workspace) == 6
        assert (await user.command("session.get"))["connections"] == {"agent": "up", "workspace": "down"}


async def test_a_frame_in_pieces_is_put_together(user: Frontend, daemon: Agentctl) -> None:
    raw = text(event("plan", plan_content="ü" * 1_000))
    stream = daemon.agent[0]
    stream.write(frame(raw[:101], fin=False) + frame(b"", opcode=9) + frame(raw[101:500], 0, fin=False))
    stream.write(frame(raw[500:], opcode=0))

    assert (await user.until("agent", "plan"))["plan_content"] == "ü" * 1_000


async def test_frames_in_one_packet_with_the_handshake_are_not_lost(user: Frontend, daemon: Agentctl) -> None:
    """B53: status and output before the dial has even returned."""
    daemon.script.workspace_greeting += [
        {"type": "git_status", "git_status": {"branch": "main"}},
        *({"type": "shell_output", "data": f"{n}"} for n in range(3)),
    ]
    daemon.script.agent_greeting = [event("session_info", session_title="early")]
    await user.open()

    await user.until("workspace", "git_status")
    await user.until("agent", "session_info", session_title="early")
    assert [one["data"] for one in await user.events("workspace", "shell_output")] == ["0", "1", "2"]
    assert (await user.command("shell.buffer"))["data"] == "012"


# Replies and requests


async def test_replies_that_match_nothing_are_ignored(user: Frontend, daemon: Agentctl) -> None:
    """B86."""
    stream = daemon.agent[0]
    done = stream.frames[0]["id"]
    stream.send(
        {"id": "unknown", "type": "response", "action": "agent.prompt", "payload": {}},
        {"id": done, "type": "response", "action": "agent.initialize", "payload": {}},
        {"id": "x", "type": "error", "payload": None},
        {"type": "error", "action": "agent.prompt", "payload": "text"},
        {"type": "response", "action": "agent.prompt", "payload": {"success": True}},
        {"type": "notification", "action": "x"},
        event("plan"),
    )
    await user.until("agent", "plan")

    def differs(stream: object, value: dict) -> None:
        daemon.agent[0].send(
            {"id": value["id"], "type": "response", "action": "zig", "payload": {"lines": ["x"]}}
        )

    daemon.script.answers["agent.stderr"] = differs
    assert await user.command("agent.stderr") == {"lines": ["x"]}
    assert await user.events("agent", "error") == []
    assert await user.events("agent", "response") == []
    assert len(daemon.agent) == 1


@pytest.mark.parametrize("payload", [None, "why", {}, {"code": "INTERNAL_ERROR"}])
async def test_an_error_without_details_is_readable(
    user: Frontend, daemon: Agentctl, payload: object
) -> None:
    """B86."""
    daemon.script.answers["agent.stderr"] = lambda stream, value: stream.send(
        {"id": value["id"], "type": "error", "action": "agent.stderr", "payload": payload}
    )
    with pytest.raises(Refused) as refused:
        await user.command("agent.stderr")

    assert refused.value.code is Code.INTERNAL
    assert refused.value.message


async def test_a_request_of_the_daemons_is_always_answered(user: Frontend, daemon: Agentctl) -> None:
    """B86: it waits without a time-out of its own."""
    stream = daemon.agent[0]
    for n in range(3):
        stream.send({"id": f"m-{n}", "type": "request", "action": "mcp.list_tasks", "payload": None})
    await eventually(lambda: len(stream.of("mcp.list_tasks")) == 3)

    for n, answer in enumerate(stream.of("mcp.list_tasks")):
        assert (answer["id"], answer["type"]) == (f"m-{n}", "error")
        assert answer["payload"]["code"] == "UNKNOWN_ACTION"


# Sockets


async def test_a_dead_workspace_socket_leaves_the_turn_alone(user: Frontend, daemon: Agentctl) -> None:
    await user.command("agent.prompt", {"text": "x"})
    daemon.script.refuse["workspace"] = (503, {"error": "away"})
    daemon.workspace[0].abort()
    await eventually(lambda: _last(user, "workspace", "down"))
    daemon.agent[0].send(event("message_chunk", text="hi"), complete(1))

    await user.until("agent", "turn", state="ended", reason="end_turn")
    assert len(daemon.agent) == 1
    with pytest.raises(TielineError) as error:
        await user.command("shell.input", {"data": "x"})
    assert error.value.code is Code.UNAVAILABLE


async def _last(user: Frontend, log: str, state: str) -> bool:
    return (await states(user, log))[-1] == state


async def test_a_socket_that_closes_in_an_orderly_way_is_lost_like_any_other(
    user: Frontend, daemon: Agentctl
) -> None:
    daemon.agent[0].close(1000)

    await eventually(lambda: len(daemon.agent) == 2)
    await eventually(lambda: _last(user, "agent", "up"))


async def test_a_short_break_of_the_agent_socket_does_not_end_the_turn(
    user: Frontend, daemon: Agentctl
) -> None:
    await user.command("agent.prompt", {"text": "x"})
    daemon.agent[0].abort()
    await eventually(lambda: len(daemon.agent) == 2)
    daemon.agent[1].send(event("message_chunk", text="still here"), complete(1))

    await user.until("agent", "turn", state="ended", reason="end_turn")


async def test_an_agent_socket_that_stays_away_ends_the_turn(user: Frontend, daemon: Agentctl) -> None:
    """B66 (b): the next prompt is refused with a reason."""
    await user.command("agent.prompt", {"text": "x"})
    daemon.script.refuse["agent"] = (503, {"error": "away"})
    daemon.agent[0].abort()

    await user.until("agent", "turn", state="ended", reason="disconnected")
    with pytest.raises(TielineError) as error:
        await user.command("agent.prompt", {"text": "y"})
    assert error.value.code is Code.UNAVAILABLE


async def test_a_daemon_that_answers_no_ping_is_dead(user: Frontend, daemon: Agentctl) -> None:
    daemon.agent[0].answer_pings = daemon.workspace[0].answer_pings = False

    await eventually(lambda: len(daemon.agent) == 2 and len(daemon.workspace) == 2)
    waiting = await user.until("agent", "connection", state="waiting")
    assert "nothing heard" in waiting["error"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("how", ["slams", "refuses"])
async def test_down_is_said_once_and_then_tried_in_silence(
    user: Frontend, daemon: Agentctl, how: str
) -> None:
    """B80: (b) accepted and closed at once, (c) refused for ever, (d) back again."""
    if how == "slams":
        daemon.script.slam.add("workspace")
    else:
        daemon.script.refuse["workspace"] = (503, {"error": "away"})
    daemon.workspace[0].abort()
    await user.until("workspace", "connection", state="down", timeout=10)
    before = await states(user, "workspace")
    dials = sum(one.path.endswith("workspace/stream") for one in daemon.asked)
    await eventually(lambda: sum(one.path.endswith("workspace/stream") for one in daemon.asked) > dials + 3)

    assert await states(user, "workspace") == before
    assert before.count("down") == 1

    daemon.script.slam.clear()
    daemon.script.refuse.clear()
    await eventually(lambda: _last(user, "workspace", "up"), timeout=8)


@pytest.mark.timeout(20)
async def test_a_daemon_that_is_back_late_and_without_the_instance_fails_the_session(
    user: Frontend, daemon: Agentctl
) -> None:
    """B66 (b): while the daemon's machine starts nobody can say what has become of the instance; then it is asked."""
    where = ("GET", f"/api/v1/instances/{next(iter(daemon.instances))}")
    daemon.script.http[where] = lambda _: (503, {"error": "still starting"})
    await daemon.forget_instances()
    for stream in (daemon.agent[0], daemon.workspace[0]):
        stream.abort()
    for log in ("agent", "workspace"):
        await user.until(log, "connection", state="down", timeout=10)
    asked = len(daemon.controlled)
    await eventually(lambda: len(daemon.controlled) > asked + 2)
    assert not await _ended(user)

    del daemon.script.http[where]
    await user.until("agent", "session", state="failed", reason="the instance is gone")


async def _ended(user: Frontend) -> bool:
    return any(one["state"] == "failed" for one in await user.events("agent", "session"))


async def test_closing_during_a_wait_ends_the_tries(user: Frontend, daemon: Agentctl) -> None:
    """B80 (e): no dial later."""
    daemon.script.refuse["workspace"] = (503, {"error": "away"})
    daemon.workspace[0].abort()
    await user.until("workspace", "connection", state="waiting")
    await user.command("session.close")
    first = user.session
    dials = sum(one.headers.get("x-instance-id") == first for one in daemon.asked)
    daemon.script.refuse.clear()

    await user.open()
    assert sum(one.headers.get("x-instance-id") == first for one in daemon.asked) == dials


async def test_a_token_that_is_refused_at_a_dial_is_not_tried_again(user: Frontend, daemon: Agentctl) -> None:
    daemon.script.refuse["agent"] = (401, {"error": "invalid auth token"})
    daemon.agent[0].abort()

    failed = await user.until("agent", "session", state="failed")
    assert "token" in failed["reason"]
    assert sum(one.path.endswith("agent/stream") for one in daemon.asked) == 2


# Floods


@pytest.mark.timeout(40)
async def test_a_flood_of_output_delays_neither_keys_nor_the_agent(user: Frontend, daemon: Agentctl) -> None:
    """B79: 50 MB of shell output, chat on the other socket, and Ctrl-C."""
    loop = asyncio.get_running_loop()
    piece = frame(text({"type": "shell_output", "data": "x" * 4_000})) * 16
    shell, agent = daemon.workspace[0], daemon.agent[0]

    async def flood() -> None:
        for _ in range(50_000_000 // 64_000):
            shell.write(piece)
            await shell.drain()

    flooding = asyncio.create_task(flood())
    await eventually(lambda: _any(user, "shell_output"))
    began = loop.time()
    await user.command("shell.input", {"data": "\x03"})
    await eventually(lambda: shell.of("shell_input"))
    typed = loop.time() - began
    agent.send(event("message_chunk", text="chat"))
    await eventually(lambda: _chat(user))
    chatted = loop.time() - began - typed
    await flooding

    assert typed < 0.5
    assert chatted < 1
    assert shell.closed.is_set() is False
    shell.send({"type": "zig"})
    await user.until("workspace", "zig", timeout=20)


async def _any(user: Frontend, type: str) -> bool:
    return (await user.command("head"))["workspace"]["last"] > 50


async def _chat(user: Frontend) -> bool:
    return bool(await user.events("agent", "message_chunk"))


@pytest.mark.timeout(30)
async def test_output_that_nobody_can_store_is_merged_dropped_and_told(
    nats_server: NatsServer, bus: Bus, known: Executors, daemon: Agentctl
) -> None:
    """B79: a broker that is away bounds nothing but its own past; the agent's log loses nothing."""
    limits = Limits(backlog_bytes=256 * 1024, heartbeat=0.5, dead=5)
    async with streams.running(nats_server.url, known, limits):
        user = Frontend(bus)
        await user.open()
        head = await user.command("head")
        dropped = DROPPED._value.get()
        nats_server.pause()
        for n in range(1_000):
            daemon.workspace[0].send({"type": "shell_output", "data": f"{n:04}" * 1_000})
            await daemon.workspace[0].drain()
        await eventually(
            lambda: DROPPED._value.get() > dropped, timeout=15
        )  # what the kernel holds is read too
        for n in range(200):
            daemon.agent[0].send(event("message_chunk", text=f"{n} "))
        await eventually(lambda: daemon.workspace[0].writer.transport.get_write_buffer_size() == 0)
        daemon.workspace[0].send({"type": "zig"})
        nats_server.resume()
        await user.until("workspace", "zig", timeout=15)
        await eventually(lambda: _all_text(user, 200), timeout=10)

        log = await user.log("workspace")
        gaps = [one.event for one in log if one.event["type"] == "gap"]
        kept = "".join(one.event["data"] for one in log if one.event["type"] == "shell_output")

    assert head["workspace"]["last"] >= 1
    assert [one.cursor.offset for one in log] == list(range(1, len(log) + 1))
    assert gaps
    assert all(one["reason"] == "overflow" for one in gaps)
    assert sum(one["events"] for one in gaps) + len(kept) // 4_000 == 1_000
    assert kept.endswith("0999" * 1_000)


async def _all_text(user: Frontend, wanted: int) -> bool:
    texts = "".join(one["text"] for one in await user.events("agent", "message_chunk"))
    return texts == "".join(f"{n} " for n in range(wanted))


@pytest.mark.timeout(30)
async def test_an_agent_that_has_more_to_say_than_fits_is_read_later_and_nothing_is_lost(
    nats_server: NatsServer, bus: Bus, known: Executors, daemon: Agentctl
) -> None:
    """A daemon decides by itself meanwhile: what it asked and does not ask any more is closed."""
    limits = Limits(backlog_bytes=64 * 1024, heartbeat=0.3, dead=1)
    asked = {"request_id": "r1", "pending_id": "p1", "permission_title": "May I?", "permission_options": []}
    async with streams.running(nats_server.url, known, limits):
        user = Frontend(bus)
        await user.open()
        daemon.agent[0].send(event("permission_request", **asked))
        await user.until("agent", "permissions", open=[asked])
        nats_server.pause()
        for n in range(2_000):
            daemon.agent[0].send(event("plan", n=n, x="x" * 6_000))  # more than kernels hold
        await asyncio.wait([asyncio.create_task(daemon.agent[0].drain())], timeout=2)
        nats_server.resume()
        await eventually(lambda: _plans(user, 2_000), timeout=20, every=0.2)

        assert [one["n"] for one in await user.events("agent", "plan")] == list(range(2_000))
        assert len(daemon.agent) == 1  # nothing was judged dead while reading was paused
        await eventually(lambda: _nothing_asked(user))


async def _nothing_asked(user: Frontend) -> bool:
    return (await user.events("agent", "permissions"))[-1]["open"] == []


async def _plans(user: Frontend, wanted: int) -> bool:
    return (await user.command("head"))["agent"]["confirmed"] >= wanted


# The broker


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kill", [False, True])
async def test_a_broker_that_restarts_loses_no_event(
    nats_server: NatsServer, user: Frontend, daemon: Agentctl, kill: bool
) -> None:
    sent = 0
    for _ in range(3):
        for _ in range(50):
            daemon.agent[0].send(event("message_chunk", text=f"{sent} "), event("tool_call", n=sent))
            sent += 1
        await nats_server.restart(kill=kill)
        daemon.agent[0].send(event("message_chunk", text=f"{sent} "), event("tool_call", n=sent))
        sent += 1
    await user.bus.wait_connected()
    await eventually(lambda: _tool_calls(user, sent), timeout=15, every=0.1)

    log = await user.log("agent")
    assert [one.cursor.offset for one in log] == list(range(1, len(log) + 1))
    texts = "".join(one.event["text"] for one in log if one.event["type"] == "message_chunk")
    assert texts == "".join(f"{n} " for n in range(sent))


async def _tool_calls(user: Frontend, wanted: int) -> bool:
    try:
        return len(await user.events("agent", "tool_call")) == wanted
    except TielineError:
        return False


# The service itself


@pytest.mark.timeout(40)
async def test_an_open_that_died_with_its_service_is_told_to_whoever_asks_again(
    nats_server: NatsServer, bus: Bus, daemon: Agentctl, known: Executors, tmp_path: Path
) -> None:
    file = tmp_path / "executors.json"
    file.write_text(known.model_dump_json())
    args = ["--executors-file", str(file), "--nats-url", nats_server.url, "--log-format", "text"]
    user = Frontend(bus)
    daemon.script.answers["agent.initialize"] = None
    async with Process("tieline_streams", tmp_path / "run", args, timeout=15) as service:
        first = asyncio.create_task(user.rpc("open", {"title": "x"}, id="same"))
        await eventually(lambda: daemon.agent and daemon.workspace)
        await service.kill()
        await service.start()
        with pytest.raises(TielineError) as caught:
            await user.rpc("open", {"title": "x"}, id="same")
        listed = (await user.rpc("list"))["sessions"]
        assert await service.stop() == 0
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)

    assert caught.value.code is Code.UNAVAILABLE
    assert [one["state"] for one in listed] == ["failed"]
