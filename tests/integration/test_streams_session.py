"""What a user can do with a session, and what they are told, against a scripted daemon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tieline_protocol import jetstream, subjects
from tieline_protocol.bus import Bus
from tieline_protocol.errors import Code, NoResponders, Refused
from tieline_streams import turn
from tieline_streams.config import Limits

from tests.support import streams
from tests.support.agentctl import Agentctl, Asked, Stream, complete, event
from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer
from tests.support.streams import USER, Frontend


@pytest.fixture
async def daemon() -> AsyncIterator[Agentctl]:
    async with Agentctl() as scripted:
        yield scripted


@pytest.fixture
async def user(
    nats_server: NatsServer, bus: Bus, daemon: Agentctl, tmp_path: Path
) -> AsyncIterator[Frontend]:
    """A user of a service with short time limits and one open session."""
    limits = Limits(
        turn=turn.Limits(cancel=0.5, disconnected=0.6, unknown=0.5, stalled=0.5),
        operation_answer=0.2,
        heartbeat=0.2,
        slow_retry=0.2,
    )
    async with streams.running(nats_server.url, streams.executors(daemon, tmp_path), limits):
        frontend = Frontend(bus)
        await frontend.open()
        yield frontend


def agent(daemon: Agentctl) -> Stream:
    return daemon.agent[-1]


def workspace(daemon: Agentctl) -> Stream:
    return daemon.workspace[-1]


async def refused(work: object) -> Refused:
    with pytest.raises(Refused) as caught:
        await work  # type: ignore[misc]
    return caught.value


# The start


async def test_the_start_up_asks_in_the_order_that_the_daemon_in_the_field_needs(
    user: Frontend, daemon: Agentctl
) -> None:
    asked = [(one.method, one.path) for one in daemon.asked]
    configured = next(one for one in daemon.asked if one.path.endswith("/configure")).json
    created = daemon.bodies[user.session]

    assert asked[:3] == [
        ("GET", "/health"),
        ("POST", "/api/v1/agent/configure"),
        ("POST", "/api/v1/start"),
    ]
    assert set(asked[3:]) == {
        ("GET", "/api/v1/agent/stream"),
        ("GET", "/api/v1/workspace/stream"),
        ("GET", "/api/v1/shell/buffer"),  # what the shell said before somebody listened
        ("GET", "/api/v1/status"),
    }
    assert asked[-1] == ("GET", "/api/v1/status")  # which process has the conversation
    assert configured["agent_args"] == ["example-agent", "--fast"]
    assert configured["env"] == {"DEMO": "1"}
    assert created["workspace_path"].endswith(f"/work/{user.session}")
    assert [one["action"] for one in agent(daemon).frames] == ["agent.initialize", "agent.session.new"]
    assert workspace(daemon).shell  # opened after the start, or it would have no shell for ever


async def test_every_call_carries_token_instance_and_epoch(user: Frontend, daemon: Agentctl) -> None:
    epoch = (await user.command("head"))["agent"]["epoch"]

    for asked in daemon.asked:
        assert asked.headers["authorization"] == f"Bearer {daemon.script.token}"
        assert asked.headers["x-instance-id"] == user.session
        assert asked.headers["x-tieline-epoch"] == str(epoch)


async def test_states_connections_and_sets_are_in_the_logs(user: Frontend) -> None:
    """B53: whoever comes late finds the last value of everything."""
    agent_log = await user.events("agent")
    workspace_log = await user.events("workspace")

    assert [one["state"] for one in agent_log if one["type"] == "session"] == ["opening", "ready"]
    assert [one["state"] for one in agent_log if one["type"] == "connection"] == ["connecting", "up"]
    assert [one["state"] for one in workspace_log if one["type"] == "connection"] == ["connecting", "up"]
    assert {"type": "permissions", "open": []} in agent_log
    assert {"type": "questions", "open": []} in agent_log
    assert {"type": "processes", "running": []} in workspace_log


async def test_a_session_is_listed_described_and_renamed(user: Frontend) -> None:
    await user.command("session.rename", {"title": "ü title"})

    listed = (await user.rpc("list"))["sessions"]
    described = await user.command("session.get")

    assert [(one["session_id"], one["title"], one["state"]) for one in listed] == [
        (user.session, "ü title", "ready")
    ]
    assert described["connections"] == {"agent": "up", "workspace": "up"}
    assert described["turn"] is None
    assert described["acp_session_id"] == "acp-1"


async def test_an_open_that_is_repeated_opens_one_session(user: Frontend, daemon: Agentctl) -> None:
    first = await user.rpc("open", {"title": "x"}, id="same")
    second = await user.rpc("open", {"title": "x"}, id="same")

    assert first == second
    assert len(daemon.instances) == 2


async def test_two_that_ask_for_the_same_open_at_once_get_the_same_session(
    user: Frontend, daemon: Agentctl
) -> None:
    first, second = await asyncio.gather(*(user.rpc("open", {"title": "x"}, id="same") for _ in range(2)))

    assert first == second
    assert len(daemon.instances) == 2


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"workspace": "../elsewhere"}, Code.BAD_REQUEST),
        ({"workspace": "/etc"}, Code.BAD_REQUEST),
        ({"workspace": "x" * 300}, Code.BAD_REQUEST),
        ({"executor": "mars"}, Code.NOT_FOUND),
        ({"agent": "mars"}, Code.NOT_FOUND),
        ({"title": 5}, Code.BAD_REQUEST),
    ],
)
async def test_an_open_that_cannot_be_is_refused(user: Frontend, payload: dict, code: Code) -> None:
    assert (await refused(user.rpc("open", payload))).code is code


async def test_a_workspace_that_leaves_the_root_through_a_link_is_refused(
    user: Frontend, tmp_path: Path
) -> None:
    (tmp_path / "work" / "link").symlink_to(tmp_path)

    assert (await refused(user.rpc("open", {"workspace": "link/x"}))).code is Code.BAD_REQUEST


async def test_a_file_is_no_workspace(user: Frontend, tmp_path: Path) -> None:
    (tmp_path / "work" / "file").touch()

    assert (await refused(user.rpc("open", {"workspace": "file"}))).code is Code.BAD_REQUEST
    assert (await refused(user.rpc("open", {"workspace": "file/below"}))).code is Code.BAD_REQUEST


async def test_a_daemon_that_cannot_start_the_agent_fails_the_session(
    user: Frontend, daemon: Agentctl
) -> None:
    daemon.script.http["POST", "/api/v1/start"] = lambda _: (
        500,
        {"success": False, "error": "no such agent"},
    )

    error = await refused(user.rpc("open"))
    failed = await eventually(lambda: _failed(user))

    assert error.code is Code.UNAVAILABLE
    assert "no such agent" in error.message
    assert "no such agent" in failed["reason"]
    assert list(daemon.instances) == [user.session]  # the other one was deleted


async def _failed(user: Frontend) -> dict | None:
    return next((one for one in (await user.rpc("list"))["sessions"] if one["state"] == "failed"), None)


async def test_a_daemon_with_another_token_fails_the_open(
    user: Frontend, daemon: Agentctl, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("wrong")
    assert (await refused(user.rpc("open"))).code is Code.UNAVAILABLE

    (tmp_path / "token").write_text(daemon.script.token)
    await user.rpc("open")  # the file is read at each open


# Whose session


@pytest.mark.parametrize("other", ["a.b", "*", ">", "a b", "ünï", "eve", "x" * 300])
async def test_a_session_of_somebody_else_does_not_exist(user: Frontend, bus: Bus, other: str) -> None:
    """B29: whatever the user id looks like, it reaches its own sessions only."""
    stranger = Frontend(bus, other)
    for endpoint in ("get", "close", "rename"):
        error = await refused(stranger.rpc(endpoint, {"session_id": user.session}))
        assert error.code is Code.NOT_FOUND
    assert (await stranger.rpc("list"))["sessions"] == []
    with pytest.raises(NoResponders):
        await stranger.command("session.get", session=user.session)


async def test_a_payload_cannot_name_another_session(user: Frontend) -> None:
    error = await refused(user.command("agent.prompt", {"session_id": "other", "text": "x"}))

    assert error.code is Code.BAD_REQUEST


async def test_an_unknown_action_is_said_to_be_unknown(user: Frontend) -> None:
    for action in ("agent.frobnicate", "status", "configure", "start", "stop", "shell.frobnicate"):
        assert (await refused(user.command(action))).code is Code.UNKNOWN_ACTION


# Prompts and turns


async def test_the_turn_is_stored_before_the_prompt_is_written(
    user: Frontend, daemon: Agentctl, bus: Bus
) -> None:
    found: list[object] = []

    def prompt(stream: Stream, value: dict) -> dict:
        found.append(value["payload"])
        return {"success": True}

    daemon.script.answers["agent.prompt"] = prompt
    reply = await user.command("agent.prompt", {"text": "hi", "client_message_id": "m1"})
    head = await user.command("head")
    turns = await user.events("agent", "turn")

    assert reply == {"generation": 1}
    assert found == [{"text": "hi", "prompt_generation": 1}]
    assert turns[0] == {"type": "turn", "generation": 1, "state": "accepted", "client_message_id": "m1"}
    assert head["agent"]["confirmed"] > 1


async def test_the_same_message_twice_is_one_prompt(user: Frontend, daemon: Agentctl) -> None:
    once = await user.command("agent.prompt", {"text": "hi", "client_message_id": "m1"})
    again = await user.command("agent.prompt", {"text": "hi", "client_message_id": "m1"})

    assert once == again
    assert len(agent(daemon).of("agent.prompt")) == 1


async def test_the_same_command_twice_is_done_once(user: Frontend, daemon: Agentctl) -> None:
    once, again = await asyncio.gather(
        user.command("agent.prompt", {"text": "hi"}, id="c1"),
        user.command("agent.prompt", {"text": "hi"}, id="c1"),
    )
    later = await user.command("agent.prompt", {"text": "hi"}, id="c1")

    assert once == again == later == {"generation": 1}
    assert len(agent(daemon).of("agent.prompt")) == 1


async def test_a_second_prompt_conflicts_or_waits_its_turn(user: Frontend, daemon: Agentctl) -> None:
    await user.command("agent.prompt", {"text": "one"})
    assert (await refused(user.command("agent.prompt", {"text": "two"}))).code is Code.CONFLICT

    assert await user.command("agent.prompt", {"text": "two", "queue": True}) == {"generation": 2}
    agent(daemon).send(complete(1), complete(2))

    await user.until("agent", "turn", generation=2, state="ended", reason="end_turn")
    told = [(one["generation"], one["state"]) for one in await user.events("agent", "turn")]
    assert told == [
        (1, "accepted"),
        (1, "running"),
        (2, "accepted"),
        (1, "ended"),
        (2, "running"),
        (2, "ended"),
    ]


async def test_a_prompt_that_the_daemon_refuses_ends_its_turn(user: Frontend, daemon: Agentctl) -> None:
    daemon.script.answers["agent.prompt"] = Exception("BAD_REQUEST")

    assert (await refused(user.command("agent.prompt", {"text": "x"}))).code is Code.BAD_REQUEST
    await user.until("agent", "turn", generation=1, state="ended", reason="error")

    del daemon.script.answers["agent.prompt"]
    assert await user.command("agent.prompt", {"text": "x"}) == {"generation": 2}


async def test_stragglers_after_the_end_change_nothing(user: Frontend, daemon: Agentctl) -> None:
    """B72: late frames after complete are published and start no turn."""
    await user.command("agent.prompt", {"text": "x"})
    late = [
        event("tool_update", tool_call_id="t", tool_status="complete"),
        event("tool_update", tool_call_id="t"),
        event("context_window"),
        event("message_chunk"),
    ]
    agent(daemon).send(complete(1), *late, event("plan"))
    await user.until("agent", "plan")

    assert (await user.events("agent", "turn"))[-1]["state"] == "ended"
    assert len(await user.events("agent", "tool_update")) == 2
    assert (await user.command("session.get"))["turn"]["state"] == "ended"


async def test_cancel_answers_although_ten_thousand_events_are_before_its_reply(
    user: Frontend, daemon: Agentctl
) -> None:
    """B65: the reader resolves replies itself; events keep their order."""

    def cancel(stream: Stream, value: dict) -> dict:
        stream.send(complete(1, "cancelled"))
        for n in range(0, 10_000, 100):
            stream.send(*(event("message_chunk", text=f"{i} ") for i in range(n, n + 100)))
        return {"success": True}

    await user.command("agent.prompt", {"text": "x"})
    daemon.script.answers["agent.cancel"] = cancel
    async with asyncio.timeout(3):
        assert await user.command("agent.cancel") == {"state": "ended"}

    await eventually(lambda: _chunks(user, 10_000), timeout=8)
    texts = "".join(one["text"] for one in await user.events("agent", "message_chunk"))
    assert texts == "".join(f"{n} " for n in range(10_000))


async def _chunks(user: Frontend, wanted: int) -> bool:
    return len(await user.events("agent", "message_chunk")) == wanted


async def test_cancel_fails_at_once_when_the_socket_dies(user: Frontend, daemon: Agentctl) -> None:
    """B65: no reply will come over a dead socket."""
    await user.command("agent.prompt", {"text": "x"})
    daemon.script.answers["agent.cancel"] = lambda stream, value: stream.abort()
    async with asyncio.timeout(2):
        error = await refused(user.command("agent.cancel"))

    assert error.code is Code.UNAVAILABLE
    await user.until("agent", "turn", state="ended", reason="cancelled")


async def test_cancel_that_the_daemon_ignores_ends_the_turn_in_time(user: Frontend, daemon: Agentctl) -> None:
    daemon.script.answers["agent.cancel"] = {"success": False, "not_acknowledged": True}
    await user.command("agent.prompt", {"text": "x"})
    assert await user.command("agent.cancel") == {"state": "cancelling"}

    await user.until("agent", "turn", state="ended", reason="cancelled")
    assert await user.command("agent.prompt", {"text": "y"}) == {"generation": 2}


async def test_an_agent_that_exits_ends_the_turn_once(user: Frontend, daemon: Agentctl) -> None:
    """B66 (a, c): of all that tells of it, the first counts."""
    await user.command("agent.prompt", {"text": "x"})
    exit = event("error", error="Agent process exited with code 1: boom", data={"exit_code": 1})
    agent(daemon).send(exit, event("error", error="prompt failed", prompt_generation=1))

    await user.until("agent", "turn", state="ended", reason="agent_exited")
    await eventually(lambda: _count(user, "error", 2))
    assert [one["state"] for one in await user.events("agent", "turn")].count("ended") == 1


async def _count(user: Frontend, type: str, wanted: int) -> bool:
    return len(await user.events("agent", type)) == wanted


async def test_silence_is_told(user: Frontend) -> None:
    await user.command("agent.prompt", {"text": "x"})

    await user.until("agent", "turn", state="running", stalled=True)


async def test_a_prompt_whose_reply_was_lost_is_never_sent_again(user: Frontend, daemon: Agentctl) -> None:
    daemon.script.answers["agent.prompt"] = lambda stream, value: stream.abort()

    assert await user.command("agent.prompt", {"text": "x"}) == {"generation": 1}

    await user.until("agent", "turn", state="ended", reason="unknown")
    assert sum(len(stream.of("agent.prompt")) for stream in daemon.agent) == 1


# Permissions


def asks(pending: str = "p1") -> dict:
    options = [{"option_id": "allow", "name": "Allow", "kind": "allow_once"}]
    return event(
        "permission_request",
        pending_id=pending,
        request_id="r1",
        permission_title="Run",
        permission_options=options,
    )


async def test_a_permission_that_is_answered_closes_for_everybody(user: Frontend, daemon: Agentctl) -> None:
    daemon.script.answers["agent.permissions.resolve"] = {"status": "resolved"}
    await user.command("agent.prompt", {"text": "x"})
    agent(daemon).send(asks())
    await user.until("agent", "turn", state="waiting_permission")

    answer = {"request_id": "r1", "pending_id": "p1", "option_id": "allow"}
    assert await user.command("agent.permissions.respond", answer) == {"status": "resolved"}

    sets = [[one["pending_id"] for one in each["open"]] for each in await user.events("agent", "permissions")]
    assert sets == [[], ["p1"], []]
    assert (await user.events("agent", "turn"))[-1]["state"] == "running"
    assert agent(daemon).of("agent.permissions.resolve")[0]["payload"] == answer


async def test_a_daemon_without_resolve_is_asked_in_its_own_way(user: Frontend, daemon: Agentctl) -> None:
    daemon.script.answers["agent.permissions.respond"] = {"success": True}
    agent(daemon).send(asks())
    await user.until("agent", "permission_request")

    answer = {"request_id": "r1", "pending_id": "p1", "cancelled": True}
    assert await user.command("agent.permissions.respond", answer) == {"status": "cancelled"}
    assert agent(daemon).of("agent.permissions.respond")[0]["payload"] == {
        "pending_id": "p1",
        "cancelled": True,
    }


async def test_a_decision_needs_an_option(user: Frontend) -> None:
    for payload in ({}, {"pending_id": "p1"}, {"pending_id": 5, "option_id": "x"}):
        assert (await refused(user.command("agent.permissions.respond", payload))).code is Code.BAD_REQUEST


async def test_a_permission_list_comes_from_the_daemon_or_from_what_was_heard(
    user: Frontend, daemon: Agentctl
) -> None:
    daemon.script.answers["agent.permissions.list"] = {"permissions": None, "total": 0}
    assert await user.command("agent.permissions.list") == {"permissions": []}

    daemon.script.answers["agent.permissions.list"] = Exception("UNKNOWN_ACTION")
    agent(daemon).send(asks())
    await user.until("agent", "permission_request")
    (listed,) = (await user.command("agent.permissions.list"))["permissions"]
    assert listed["pending_id"] == "p1"


# The shell


async def test_a_thousand_keys_arrive_in_order(user: Frontend, daemon: Agentctl) -> None:
    keys = [chr(97 + n % 26) for n in range(1_000)]
    async with asyncio.TaskGroup() as group:
        for key in keys:
            group.create_task(user.command("shell.input", {"data": key}))

    await eventually(lambda: len(workspace(daemon).of("shell_input")) == 1_000)
    assert [one["data"] for one in workspace(daemon).of("shell_input")] == keys


async def test_nonsense_sizes_are_never_forwarded(user: Frontend, daemon: Agentctl) -> None:
    """B77."""
    bad = [
        (0, 0),
        (-1, 24),
        (80, 0),
        (65_536, 1),
        (10**9, 10**9),
        ("80", "24"),
        (80.5, 24),
        (None, None),
        (True, 1),
    ]
    for cols, rows in bad:
        assert (
            await refused(user.command("shell.resize", {"cols": cols, "rows": rows}))
        ).code is Code.BAD_REQUEST
    assert (await refused(user.command("shell.resize"))).code is Code.BAD_REQUEST

    assert await user.command("shell.resize", {"cols": 100, "rows": 30}) == {}
    await eventually(lambda: workspace(daemon).of("shell_resize"))
    (resized,) = workspace(daemon).of("shell_resize")
    assert (resized["cols"], resized["rows"]) == (100, 30)
    assert workspace(daemon) is daemon.workspace[0]


async def test_the_screen_comes_with_the_cursor_that_continues_it(user: Frontend, daemon: Agentctl) -> None:
    """B53: the shell's output so far, and exactly where the log goes on."""
    for n in range(5):
        workspace(daemon).send({"type": "shell_output", "data": f"line {n}\r\n"})
    await eventually(lambda: _shell(user, "line 4"))

    screen = await user.command("shell.buffer")
    workspace(daemon).send({"type": "shell_output", "data": "later"})
    await eventually(lambda: _shell(user, "later"))

    log = await user.log("workspace")
    epoch, offset, _ = map(int, screen["cursor"].split("."))
    after = [one.event.get("data") for one in log if (one.cursor.epoch, one.cursor.offset) > (epoch, offset)]
    assert screen["data"] == "".join(f"line {n}\r\n" for n in range(5))
    assert after == ["later"]


async def _shell(user: Frontend, wanted: str) -> bool:
    return any(wanted in one.get("data", "") for one in await user.events("workspace", "shell_output"))


# Bytes


async def test_whitespace_and_empty_chunks_arrive_as_they_were_sent(user: Frontend, daemon: Agentctl) -> None:
    """B89."""
    texts = ["Hello", " ", "\n\n", "", "  - a\t", "\r\n", "world", "\x00"]
    agent(daemon).send(
        *(event("message_chunk", text=one) for one in texts), event("message_chunk"), event("plan")
    )
    await user.until("agent", "plan")

    chunks = await user.events("agent", "message_chunk")
    assert "".join(one.get("text", "") for one in chunks) == "".join(texts)
    assert len(chunks) == 9


async def test_an_event_is_passed_on_byte_for_byte(user: Frontend, daemon: Agentctl, bus: Bus) -> None:
    raw = rb'{ "z":1.0, "type" :"plan", "a":"\u00fc\ud83d \/", "n":12345678901234567890, "z":2 }'
    agent(daemon).send(raw)
    await user.until("agent", "plan")

    stored = await jetstream.last_message(
        bus, subjects.STREAM_AGENT, subjects.event(USER, user.session, "agent", "plan")
    )
    assert stored is not None
    assert b'"event":' + raw + b"}}" in stored.data


async def test_odd_names_in_git_status_survive(user: Frontend, daemon: Agentctl) -> None:
    """B85."""
    files = {
        "b ü.txt": {"status": "renamed", "old_path": 'a -> "x".txt', "staged": True},
        "new\nline\t-x": {"status": "added"},
        "caf\\303\\251.txt": {"status": "modified"},
        "e\u0301": {"status": "added"},
        "\u00e9": {"status": "added"},
    }
    workspace(daemon).send({"type": "git_status", "git_status": {"renamed": ["b ü.txt"], "files": files}})
    for operation in ("rename", "chmod", "refresh"):
        workspace(daemon).send({"type": "file_change", "file_change": {"path": "", "operation": operation}})
    await user.until("workspace", "file_change", file_change={"path": "", "operation": "refresh"})

    (status,) = await user.events("workspace", "git_status")
    assert status["git_status"]["files"] == files


async def test_frames_as_go_writes_them_do_no_harm(user: Frontend, daemon: Agentctl) -> None:
    """B28: nulls, omitted zeros, unknown types and fields."""
    frames = [
        {"type": "shell_exit", "timestamp": 1},
        {"type": "git_status", "git_status": {"modified": None, "branch": ""}},
        {"type": "process_status", "process_status": {"process_id": "p", "status": "exited"}},
        {"type": "branch_switch2", "zig": None},
        {"type": "process_status"},
    ]
    workspace(daemon).send(*frames)
    agent(daemon).send(event("context_window"), {"type": "zig", "data": None})
    await user.until("workspace", "branch_switch2")
    await user.until("agent", "zig")

    events = await user.events("workspace")
    assert [one for one in events if one in frames] == frames
    assert len(daemon.workspace) == len(daemon.agent) == 1


async def test_events_of_our_own_types_are_told_to_be_foreign(user: Frontend, daemon: Agentctl) -> None:
    agent(daemon).send({"type": "turn", "generation": 99, "state": "running"})

    foreign = await user.until("agent", "foreign")
    assert foreign["event"] == {"type": "turn", "generation": 99, "state": "running"}
    assert await user.events("agent", "turn") == []


async def test_processes_are_a_set_that_is_told_whenever_it_changes(user: Frontend, daemon: Agentctl) -> None:
    for status in ("running", "exited"):
        body = {"process_id": "p1", "command": "make", "status": status}
        workspace(daemon).send({"type": "process_status", "process_status": body})
    await eventually(lambda: _processes(user, 3))

    sets = [
        [one["process_id"] for one in each["running"]] for each in await user.events("workspace", "processes")
    ]
    assert sets == [[], ["p1"], []]


async def _processes(user: Frontend, wanted: int) -> bool:
    return len(await user.events("workspace", "processes")) == wanted


# HTTP


async def test_operations_reach_the_daemon_and_their_answers_come_as_they_are(
    user: Frontend, daemon: Agentctl
) -> None:
    daemon.script.http["GET", "/api/v1/workspace/tree"] = lambda asked: (200, {"root": asked.query})
    daemon.script.http["POST", "/api/v1/git/stage"] = lambda asked: (
        200,
        {"success": True, "got": asked.json},
    )
    daemon.script.http["GET", "/api/v1/processes"] = lambda asked: (200, [{"id": "p", "q": asked.query}])

    assert await user.command("workspace.file-tree", {"path": "a b", "depth": 0}) == {
        "root": {"path": "a b", "depth": "0"}
    }
    assert await user.command("git.stage", {"paths": []}) == {"success": True, "got": {"paths": []}}
    listed = await user.command("process.list")
    assert listed == {"processes": [{"id": "p", "q": {"session_id": user.session}}]}


async def test_a_process_belongs_to_the_session_and_starts_in_its_workspace(
    user: Frontend, daemon: Agentctl
) -> None:
    daemon.script.http["POST", "/api/v1/processes/start"] = lambda asked: (200, {"process": asked.json})

    started = (await user.command("process.start", {"command": "make", "working_dir": "sub"}))["process"]

    assert started["session_id"] == user.session
    assert started["kind"] == "custom"
    assert started["working_dir"].endswith(f"/work/{user.session}/sub")
    with pytest.raises(Refused, match="working_dir"):
        await user.command("process.start", {"command": "make", "working_dir": "../.."})


async def test_a_failure_in_an_orderly_way_is_an_answer(user: Frontend, daemon: Agentctl) -> None:
    body = {"success": False, "operation": "merge", "output": "", "conflict_files": ["a"]}
    daemon.script.http["POST", "/api/v1/git/merge"] = lambda _: (200, body)
    daemon.script.http["POST", "/api/v1/git/commit"] = lambda _: (409, body)

    assert await user.command("git.merge", {"base_branch": "main"}) == body
    assert await user.command("git.commit", {"message": "m"}) == body


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, {"error": "bad"}, Code.BAD_REQUEST),
        (404, {"error": "process not found"}, Code.NOT_FOUND),
        (404, b"404 page not found", Code.NOT_FOUND),
        (500, {"error": "boom"}, Code.INTERNAL),
        (200, b"<html>", Code.INTERNAL),
        (200, b"[1]", Code.INTERNAL),
        (200, b'{"x":"%b"}' % (b"x" * 5_300_000), Code.TOO_LARGE),
    ],
)
async def test_errors_of_the_daemon_come_from_the_closed_list(
    user: Frontend, daemon: Agentctl, status: int, body: object, code: Code
) -> None:
    daemon.script.http["GET", "/api/v1/git/status"] = lambda _: (status, body)

    assert (await refused(user.command("git.status"))).code is code
    assert (await user.command("session.get"))["state"] == "ready"


async def test_a_long_operation_goes_on_behind_its_id(user: Frontend, daemon: Agentctl) -> None:
    go = asyncio.Event()

    async def push(asked: Asked) -> tuple[int, dict]:
        await go.wait()
        return 200, {"success": True, "operation": "push", "output": "done"}

    daemon.script.http["POST", "/api/v1/git/push"] = push
    answer = await user.command("git.push")
    await user.until("workspace", "operation", state="running", **answer)
    go.set()

    done = await user.until("workspace", "operation", state="done", **answer)
    assert done["action"] == "git.push"
    assert done["result"]["output"] == "done"


async def test_a_read_survives_a_connection_that_the_daemon_has_closed(
    user: Frontend, daemon: Agentctl
) -> None:
    """B87: kept connections closed after each answer, and once between request and answer."""
    daemon.script.http["GET", "/api/v1/git/status"] = lambda _: (200, {"success": True})
    daemon.script.hang_up = "after"
    for _ in range(5):
        assert await user.command("git.status") == {"success": True}

    daemon.script.hang_up = "before"
    assert await user.command("git.status") == {"success": True}


async def test_a_write_is_done_at_most_once(user: Frontend, daemon: Agentctl) -> None:
    """B87: a POST whose connection breaks under it is an error, not a second POST."""
    daemon.script.http["POST", "/api/v1/git/stage"] = lambda _: (200, {"success": True})
    daemon.script.hang_up = "after"
    for _ in range(5):
        assert await user.command("git.stage") == {"success": True}

    daemon.script.hang_up = "before"
    assert (await refused(user.command("git.stage"))).code is Code.UNAVAILABLE
    assert sum(one.path == "/api/v1/git/stage" for one in daemon.asked) == 6


async def test_an_instance_that_is_gone_fails_the_session(user: Frontend, daemon: Agentctl) -> None:
    daemon.script.http["GET", "/api/v1/git/status"] = lambda _: (
        404,
        {"error": "gone", "recycled_port": True},
    )

    assert (await refused(user.command("git.status"))).code is Code.UNAVAILABLE
    await user.until("agent", "session", state="failed", reason="the instance is gone")


async def test_a_slow_operation_delays_nobody(user: Frontend, daemon: Agentctl) -> None:
    """B31: commands of one session run side by side."""
    go = asyncio.Event()

    async def slow(asked: Asked) -> tuple[int, dict]:
        await go.wait()
        return 200, {}

    daemon.script.http["GET", "/api/v1/git/log"] = slow
    waiting = asyncio.create_task(user.command("git.log"))
    async with asyncio.timeout(1):
        assert (await user.command("session.get"))["state"] == "ready"
        await user.rpc("list")
    go.set()
    assert await waiting == {}


@pytest.mark.parametrize(
    ("action", "payload"),
    [
        ("file-content", {"path": "/etc/passwd"}),
        ("file-content", {"path": "~/.ssh/id_rsa"}),
        ("file-content", {"path": "a.txt", "repo": "../other"}),
        ("file-tree", {"path": "/"}),
        ("file-create", {"path": "../a"}),
        ("file-rename", {"old_path": "a", "new_path": "/tmp/a"}),
        ("file-delete", {"path": "/a"}),
        ("file-search", {"q": "a", "repo": "/"}),
    ],
)
async def test_a_path_outside_the_workspace_never_reaches_the_daemon(
    user: Frontend, daemon: Agentctl, action: str, payload: dict[str, Any]
) -> None:
    asked = len(daemon.asked)

    with pytest.raises(Refused, match="a path within the workspace") as refused:
        await user.command(f"workspace.{action}", payload)

    assert refused.value.code is Code.BAD_REQUEST
    assert len(daemon.asked) == asked


@pytest.mark.parametrize("workspace", ["", ".", "./", "a/.."])
async def test_the_executors_root_is_no_workspace(user: Frontend, workspace: str) -> None:
    with pytest.raises(Refused) as refused:
        await user.rpc("open", {"workspace": workspace})

    assert refused.value.code is Code.BAD_REQUEST


# The end


async def test_a_closed_session_leaves_nothing_open(user: Frontend, daemon: Agentctl, bus: Bus) -> None:
    await user.command("agent.prompt", {"text": "x"})
    agent(daemon).send(asks())
    await user.until("agent", "turn", state="waiting_permission")
    order: list[str] = []
    for name, stream in (("agent", agent(daemon)), ("workspace", workspace(daemon))):
        asyncio.get_running_loop().create_task(_closing(stream, name, order))

    assert await user.command("session.close") == {}

    log = await user.events("agent")
    assert [one for one in log if one["type"] == "turn"][-1]["reason"] == "cancelled"
    assert [one for one in log if one["type"] == "permissions"][-1]["open"] == []
    assert log[-1] == {"type": "session", "state": "closed"}
    assert order == ["agent", "workspace"]
    assert [one.path for one in daemon.asked][-1] == "/api/v1/stop"
    assert daemon.instances == {}
    assert [one["state"] for one in (await user.rpc("list"))["sessions"]] == ["closed"]


async def _closing(stream: Stream, name: str, order: list[str]) -> None:
    await stream.closed.wait()
    order.append(name)


async def test_a_session_answers_at_once_after_its_close(user: Frontend) -> None:
    """Whoever was told that it is closed asks nobody else, whichever of its owner and the service hears it."""
    closing = [asyncio.create_task(user.command("session.close")) for _ in range(2)]
    assert await asyncio.gather(*closing) == [{}, {}]
    with pytest.raises(NoResponders):
        await user.command("session.get")

    assert (await user.rpc("get", {"session_id": user.session}))["state"] == "closed"
    assert await user.rpc("close", {"session_id": user.session}) == {}
    assert await user.rpc("rename", {"session_id": user.session, "title": "old"}) == {}


async def test_commands_on_their_way_while_a_session_closes_are_answered(user: Frontend, bus: Bus) -> None:
    """None of them meets silence: the owner, or nobody."""
    asked: list[asyncio.Task[Any]] = [asyncio.create_task(user.command("session.close"))]
    while not asked[0].done():
        asked.append(asyncio.create_task(_seen(user)))
        await asyncio.wait([asked[0], asked[-1]], return_when=asyncio.FIRST_COMPLETED)
    seen = await asyncio.gather(*asked[1:])

    assert seen[0] in ("ready", "closing")
    assert seen[-1] in ("closed", "nobody")


async def _seen(user: Frontend) -> str:
    try:
        return str((await user.command("session.get", budget_ms=2_000))["state"])
    except NoResponders:
        return "nobody"


async def test_a_closed_session_can_still_be_seen_renamed_and_closed(user: Frontend) -> None:
    await user.command("session.close")
    with pytest.raises(NoResponders):
        await eventually(lambda: _asked(user))

    assert (await user.rpc("get", {"session_id": user.session}))["state"] == "closed"
    assert await user.rpc("close", {"session_id": user.session}) == {}
    assert await user.rpc("rename", {"session_id": user.session, "title": "old"}) == {}
    assert (await user.rpc("get", {"session_id": user.session}))["title"] == "old"


async def _asked(user: Frontend) -> bool:
    await user.command("session.get")
    return False
