"""Our client of agentctl's two sockets, held to frames that were written down from the wire's description."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from tieline_protocol.agentctl import Frame
from tieline_protocol.errors import Code, Refused
from tieline_streams.config import Limits
from tieline_streams.executors import Wanted, control
from tieline_streams.reverse_requests import Asked
from tieline_streams.stream_manager import Execution, StreamManager
from tieline_streams.workspace_callbacks import WorkspaceStreamCallbacks

from tests.support.agentctl import Agentctl
from tests.support.eventually import eventually

S = (
    '"supports_image":false,"supports_audio":false,'
    '"supports_embedded_context":false,"supports_prompt_queueing":false'
)

AGENT_EVENTS = [
    one.replace("S}", S + "}")
    for one in [
        '{"type":"agent_capabilities","supports_image":false,"supports_audio":false,'
        '"supports_embedded_context":false,"supports_prompt_queueing":true}',
        '{"type":"session_status","session_id":"mock-session-900-1","session_status":"new",'
        '"data":{"session_status":"new","init":true},S}',
        '{"type":"session_mode","session_id":"mock-session-900-1","current_mode_id":"default",'
        '"available_modes":[{"id":"default","name":"Default"}],S}',
        '{"type":"available_commands","session_id":"mock-session-900-1",'
        '"available_commands":[{"name":"slow","description":"slow answer","input_hint":"10s"}],S}',
        '{"type":"message_chunk","session_id":"mock-session-900-1","text":"Looking at ",S}',
        '{"type":"message_chunk","session_id":"mock-session-900-1",'
        '"content_blocks":[{"type":"image","data":"aGk=","mime_type":"image/png"}],S}',
        '{"type":"reasoning","session_id":"mock-session-900-1","reasoning_text":"The test fails because",S}',
        '{"type":"tool_call","session_id":"mock-session-900-1","tool_call_id":"mock_tool_0001","tool_name":"read",'
        '"tool_title":"Read app.py","tool_status":"in_progress",'
        '"normalized":{"kind":"read_file","read_file":{"file_path":"app.py"}},S}',
        '{"type":"tool_update","session_id":"mock-session-900-1","tool_call_id":"mock_tool_0003",'
        '"tool_status":"cancelled",S}',
        '{"type":"permission_request","session_id":"sess-41","tool_call_id":"mock_tool_0002","request_id":"5c",'
        '"pending_id":"mock-session-900-1-mock_tool_0002-1933000000000000000","permission_title":"Run tests",'
        '"permission_options":[{"option_id":"allow","name":"Allow","kind":"allow_once"}],'
        '"action_type":"command","action_details":{"raw_input":{"command":"pytest -q"}},S}',
        '{"type":"permission_cancelled","session_id":"sess-41","request_id":"5c",'
        '"pending_id":"mock-session-900-1-mock_tool_0002-1933000000000000000",S}',
        '{"type":"context_window","session_id":"mock-session-900-1","context_window_size":1000000,'
        '"context_window_used":24000,"context_window_remaining":976000,"context_efficiency":2.4,S}',
        '{"type":"plan","session_id":"mock-session-900-1",'
        '"plan_entries":[{"description":"write test","status":"in_progress","priority":"high"}],S}',
        '{"type":"complete","session_id":"mock-session-900-1","prompt_generation":3,'
        '"data":{"stop_reason":"end_turn"},"usage":{"input_tokens":900,"output_tokens":40,'
        '"output_tokens_present":true,"total_tokens":940},S}',
        '{"type":"error","error":"529 overloaded","prompt_generation":3,S}',
        '{"type":"error","error":"Agent process exited with code 1: boom",'
        '"data":{"exit_code":1,"recent_stderr":["boom"]},S}',
        '{"type":"auth_required","auth_methods":[{"id":"login","name":"Log in"}],'
        '"error":"authentication required",S}',
    ]
]

WORKSPACE_FRAMES = [
    '{"type":"git_status","timestamp":1933135628125,"git_status":{"timestamp":"2031-04-05T08:07:08.12+02:00",'
    '"modified":["app.py"],"added":[],"deleted":null,"untracked":["n.txt"],"renamed":[],"ahead":1,"behind":0,'
    '"branch":"feat/x","remote_ahead":0,"remote_behind":0}}',
    '{"type":"git_commit","timestamp":1933135629000,"git_commit":{"timestamp":"0001-01-01T00:00:00Z",'
    '"commit_sha":"9f1c","parent_sha":"77aa","message":"add parser"}}',
    '{"type":"git_reset","timestamp":1933135630000,"git_reset":{"previous_head":"9f1c","current_head":"77aa"}}',
    '{"type":"branch_switch","timestamp":1933135631000,"branch_switch":{"previous_branch":"main",'
    '"current_branch":"feat/x"}}',
    '{"type":"file_change","timestamp":1933135632000,"file_change":{"path":"","operation":"refresh"}}',
    '{"type":"process_output","timestamp":1933135633000,"process_output":{"session_id":"sess-41",'
    '"process_id":"0f0e","kind":"dev","stream":"stdout","data":"ready\\n"}}',
    '{"type":"process_status","timestamp":1933135634000,"process_status":{"process_id":"0f0e","kind":"dev",'
    '"command":"npm run dev","working_dir":"/srv/w/41","status":"exited","exit_code":0}}',
    '{"type":"shell_output","timestamp":1933135635000,"data":"$ ls\\r\\n"}',
    '{"type":"shell_exit","timestamp":1933135635001}',
    '{"type":"error","timestamp":1933135635002,"error":"no shell"}',
    '{"type":"branch_switch2","timestamp":1}',
]


@dataclass
class Client:
    """A `StreamManager` that writes down what it is told."""

    manager: StreamManager
    updates: list[bytes] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    connections: list[dict[str, Any]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


@pytest.fixture
async def daemon() -> AsyncIterator[Agentctl]:
    async with Agentctl() as scripted:
        yield scripted


@pytest.fixture
async def client(daemon: Agentctl, tmp_path: Any) -> AsyncIterator[Client]:
    record = await control.create(daemon.control_url, daemon.script.token, Wanted("exec-41", tmp_path))
    found = Client.__new__(Client)

    def noted(name: str) -> Any:
        return lambda *args: found.calls.append((name, args[0] if args else None))

    def heard(frames: list[Frame]) -> None:
        found.frames.extend(frame.raw for frame in frames)

    async def tools(asked: Asked) -> dict[str, Any]:
        if asked.action == "mcp.ask_user_question":
            question = asked.payload["questions"][0]["id"]
            return {"answers": [{"question_id": question, "selected_options": ["q1_opt2"]}]}
        if asked.action == "mcp.broken":
            raise ZeroDivisionError
        raise Refused(Code.UNKNOWN_ACTION, "not supported")

    names = "connected shell_output shell_exit process_output process_status git_status git_commit git_reset"
    callbacks = {
        f"on_{name}": noted(name) for name in [*names.split(), "branch_switch", "file_change", "error"]
    }
    execution = Execution(
        url=record.url,
        headers={
            "Authorization": f"Bearer {record.token}",
            "X-Instance-ID": "exec-41",
            "X-Tieline-Epoch": "7",
        },
        handler=lambda frames: found.updates.extend(frame.raw for frame in frames),
        mcp_handler=tools,
        on_disconnect=lambda reason: found.lost.append(reason),
        on_connect=lambda: None,
        on_invalid=lambda stream, gap: None,
        callbacks=WorkspaceStreamCallbacks(on_frames=heard, **callbacks),
        tell=lambda event: found.connections.append(event),
    )
    found.__init__(StreamManager(execution, Limits(heartbeat=0.1)))  # type: ignore[misc]
    ready = asyncio.Event()
    connected = asyncio.create_task(found.manager.connect_all(execution, ready))
    await ready.wait()
    yield found
    await found.manager.close()
    connected.cancel()
    await asyncio.gather(connected, return_exceptions=True)


async def test_events_are_handed_on_as_they_came(client: Client, daemon: Agentctl) -> None:
    raws = [one.encode() for one in AGENT_EVENTS]
    daemon.agent[0].send(*raws)

    await eventually(lambda: len(client.updates) == len(raws))
    assert client.updates == raws


async def test_workspace_frames_reach_their_callbacks(client: Client, daemon: Agentctl) -> None:
    """B28: exit code 0 is left out on the wire and means 0; lists may be null; unknown types pass."""
    daemon.workspace[0].send(*(one.encode() for one in WORKSPACE_FRAMES))
    await eventually(lambda: len(client.frames) == len(WORKSPACE_FRAMES) + 1)

    assert client.frames[1:] == [one.encode() for one in WORKSPACE_FRAMES]
    calls = dict(client.calls)
    assert calls["shell_output"] == "$ ls\r\n"
    assert calls["shell_exit"] == 0
    assert calls["error"] == "no shell"
    assert calls["git_status"]["deleted"] is None
    assert calls["process_status"]["exit_code"] == 0
    assert calls["file_change"] == {"path": "", "operation": "refresh"}
    assert next(name for name, _ in client.calls) == "connected"
    assert len(client.calls) == len(WORKSPACE_FRAMES)  # with `connected`, without `branch_switch2`


async def test_a_pong_is_no_event(client: Client, daemon: Agentctl) -> None:
    await eventually(lambda: len(daemon.workspace[0].of("ping")) > 2)
    daemon.workspace[0].send({"type": "zig"})
    await eventually(lambda: client.frames[-1] == b'{"type": "zig"}')

    assert not any(b"pong" in one for one in client.frames)


async def test_requests_are_envelopes_with_an_id_of_their_own(client: Client, daemon: Agentctl) -> None:
    payload = {"text": "fix the test", "prompt_generation": 3}

    reply = await client.manager.send_stream_request("agent.prompt", payload, 5)
    await client.manager.send_stream_request("agent.cancel", None, 5)

    prompt, cancel = daemon.agent[0].frames
    assert reply == {"success": True}
    assert uuid.UUID(prompt["id"]).version == 4
    assert {**prompt, "id": ""} == {"id": "", "type": "request", "action": "agent.prompt", "payload": payload}
    assert cancel["payload"] is None
    assert cancel["id"] != prompt["id"]


async def test_answers_may_come_in_any_order(client: Client, daemon: Agentctl) -> None:
    waiting: list[dict] = []
    daemon.script.answers["agent.stderr"] = lambda stream, value: waiting.append(value)
    first = asyncio.create_task(client.manager.send_stream_request("agent.stderr", None, 5))
    await eventually(lambda: len(waiting) == 1)
    second = asyncio.create_task(client.manager.send_stream_request("agent.stderr", None, 5))
    await eventually(lambda: len(waiting) == 2)
    for line, value in (("b", waiting[1]), ("a", waiting[0])):
        daemon.agent[0].send(
            {"id": value["id"], "type": "response", "action": "agent.stderr", "payload": {"lines": [line]}}
        )

    assert await first == {"lines": ["a"]}
    assert await second == {"lines": ["b"]}


async def test_an_error_envelope_keeps_the_daemons_words(client: Client, daemon: Agentctl) -> None:
    details = {"permission_code": "permission_already_resolved"}
    payload = {"code": "CONFLICT", "message": "permission_already_resolved", "details": details}
    daemon.script.answers["agent.permissions.resolve"] = lambda stream, value: stream.send(
        {"id": value["id"], "type": "error", "action": value["action"], "payload": payload}
    )
    with pytest.raises(Refused) as refused:
        await client.manager.send_stream_request("agent.permissions.resolve", {}, 5)

    assert refused.value.code is Code.CONFLICT
    assert refused.value.details == {"agentctl": payload}


async def test_the_tunnel_is_answered_whatever_it_asks(client: Client, daemon: Agentctl) -> None:
    stream = daemon.agent[0]
    asked = '{"id":"m-1","type":"request","action":"mcp.ask_user_question","payload":{"session_id":"sess-41",'
    stream.send(
        (
            asked
            + '"questions":[{"id":"q1","prompt":"Which DB?"}],"context":""},"timestamp":"2031-04-05T06:07:20.9Z"}'
        ).encode(),
        b'{"id":"m-2","type":"request","action":"mcp.list_plugin_tools","payload":{"surface":"kanban-task"}}',
        b'{"id":"m-3","type":"request","action":"mcp.broken","payload":null}',
        b'{"type":"request","action":"mcp.no_id"}',
    )
    await eventually(lambda: len(stream.frames) == 3)

    answers = {one["id"]: one for one in stream.frames}
    assert answers["m-1"]["type"] == "response"
    assert answers["m-1"]["payload"]["answers"][0]["selected_options"] == ["q1_opt2"]
    assert answers["m-2"]["payload"] == {"code": "UNKNOWN_ACTION", "message": "not supported"}
    assert answers["m-3"]["payload"]["code"] == "INTERNAL_ERROR"


async def test_what_the_shell_is_told_is_flat_with_milliseconds(client: Client, daemon: Agentctl) -> None:
    client.manager.write_shell_input("ls\r")
    client.manager.resize_shell(120, 40)
    await eventually(lambda: daemon.workspace[0].of("shell_resize"))

    (typed,), (resized,) = daemon.workspace[0].of("shell_input"), daemon.workspace[0].of("shell_resize")
    assert typed == {"type": "shell_input", "timestamp": typed["timestamp"], "data": "ls\r"}
    assert resized == {"type": "shell_resize", "timestamp": resized["timestamp"], "cols": 120, "rows": 40}
    assert isinstance(typed["timestamp"], int)
    assert typed["timestamp"] > 1_700_000_000_000


async def test_half_an_emoji_typed_into_the_shell_does_no_harm(client: Client, daemon: Agentctl) -> None:
    """B20."""
    client.manager.write_shell_input("a\ud83db")
    await eventually(lambda: daemon.workspace[0].of("shell_input"))

    assert daemon.workspace[0].of("shell_input")[0]["data"] == "a�b"


async def test_a_thousand_frames_at_once_interleave_whole(client: Client, daemon: Agentctl) -> None:
    """B52: requests, answers, pings and a long frame from many places at once: each arrives whole, in its order."""
    stream = daemon.agent[0]
    async with asyncio.TaskGroup() as group:
        for n in range(200):
            group.create_task(
                client.manager.send_stream_request("agent.prompt", {"text": "x" * n, "n": n}, 5)
            )
            stream.send({"id": f"m-{n}", "type": "request", "action": "mcp.list_tasks", "payload": {"n": n}})
            if n == 100:
                group.create_task(
                    client.manager.send_stream_request("agent.prompt", {"text": "y" * 65_536}, 5)
                )
    await eventually(lambda: len(stream.of("mcp.list_tasks")) == 200)

    asked = [one["payload"]["n"] for one in stream.of("agent.prompt") if "n" in one["payload"]]
    assert asked == list(range(200))
    assert sorted(int(one["id"][2:]) for one in stream.of("mcp.list_tasks")) == list(range(200))
    assert all(json.loads(raw) for raw in stream.raw)


async def test_both_dials_say_who_they_are(client: Client, daemon: Agentctl) -> None:
    for stream in (daemon.agent[0], daemon.workspace[0]):
        headers = stream.asked.headers
        assert headers["authorization"] == f"Bearer {daemon.script.token}"
        assert headers["x-instance-id"] == "exec-41"
        assert headers["x-tieline-epoch"] == "7"
        assert "sec-websocket-extensions" not in headers
        assert "sec-websocket-protocol" not in headers


async def test_it_closes_the_agent_socket_first(client: Client, daemon: Agentctl) -> None:
    order: list[str] = []

    async def closed(name: str) -> None:
        await getattr(daemon, name)[0].closed.wait()
        order.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(closed("agent"))
        group.create_task(closed("workspace"))
        await client.manager.close()

    assert order == ["agent", "workspace"]
    assert daemon.agent[0].close_code == daemon.workspace[0].close_code == 1000
    assert client.lost
