"""The daemon's agent stream against `agentctl-wire.md` section 3: frames written by hand from that page.

They go over a bare socket. The agent behind it is a script that says exactly what a test wants, so that odd agents
can be played too.
"""

import asyncio
import json
import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from tests.support.agent_rig import RAW_AGENT, Rig, agent_rig, answers, steps
from tests.support.eventually import eventually

FOUR = {
    "supports_image": False,
    "supports_audio": False,
    "supports_embedded_context": False,
    "supports_prompt_queueing": False,
}
STAMP = "2031-04-05T06:07:08Z"


@asynccontextmanager
async def running(tmp_path: Path, env: dict[str, str] | None = None, **settings: Any):
    async with agent_rig(tmp_path, *RAW_AGENT, env=env, **settings) as rig:
        await rig.agent.start()
        yield rig


@asynccontextmanager
async def socket(rig: Rig, **headers: str):
    async with connect(rig.url, additional_headers=headers, max_size=None) as connection:
        yield connection


async def read(connection: ClientConnection) -> dict[str, Any]:
    message = await connection.recv()
    assert isinstance(message, str), "only text frames"
    frame: dict[str, Any] = json.loads(message)
    return frame


async def until(connection: ClientConnection, **members: Any) -> dict[str, Any]:
    """Read on to a frame with these members."""
    while True:
        frame = await read(connection)
        if all(frame.get(name) == value for name, value in members.items()):
            return frame


async def ask(connection: ClientConnection, action: str, payload: Any, id: str = "") -> dict[str, Any]:
    id = id or f"id-{action}"
    frame = {"id": id, "type": "request", "action": action, "payload": payload, "timestamp": STAMP}
    await connection.send(json.dumps(frame))
    return await until(connection, id=id)


async def session(connection: ClientConnection) -> None:
    await ask(connection, "agent.initialize", {"client_name": "streams", "client_version": "0.1"})
    await ask(connection, "agent.session.new", {"cwd": "/srv/w/41", "mcp_servers": []})


async def prompt(
    connection: ClientConnection, *what: dict[str, Any], generation: int = 3, **more: Any
) -> None:
    payload = {"text": steps(*what), "prompt_generation": generation, **more}
    answer = await ask(connection, "agent.prompt", payload, f"p{generation}")
    assert answer["payload"] == {"success": True}


END = {"end": {"stopReason": "end_turn"}}


async def test_a_response_has_the_envelope_of_its_request(tmp_path: Path):
    async with running(tmp_path) as rig, socket(rig) as connection:
        answer = await ask(
            connection, "agent.initialize", {"client_name": "streams", "client_version": "0.1"}, "11"
        )

        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", answer.pop("timestamp")
        )
        assert answer == {
            "id": "11",
            "type": "response",
            "action": "agent.initialize",
            "payload": {"success": True, "agent_info": {"name": "unknown", "version": "unknown"}},
        }


async def test_a_session_begins_with_these_frames(tmp_path: Path):
    env = answers(
        initialize={
            "protocolVersion": 1,
            "agentCapabilities": {"promptCapabilities": {"image": True}, "_meta": {"promptQueueing": True}},
        },
        session__new={
            "sessionId": "raw-1",
            "modes": {"currentModeId": "default", "availableModes": [{"id": "default", "name": "Default"}]},
        },
        after__session__new=[
            {
                "sessionUpdate": "available_commands_update",
                "availableCommands": [{"name": "slow", "description": "d"}],
            }
        ],
    )
    async with running(tmp_path, env) as rig, socket(rig) as connection:
        await connection.send('{"id":"1","type":"request","action":"agent.initialize","payload":null}')
        frames = [await read(connection), await read(connection)]
        await connection.send('{"id":"2","type":"request","action":"agent.session.new","payload":{"cwd":""}}')
        while not any(frame["type"] == "available_commands" for frame in frames):
            frames.append(await read(connection))
        events = [frame for frame in frames if "id" not in frame and frame["type"] != "mcp_attachment"]

        assert events == [
            {"type": "agent_capabilities", **FOUR, "supports_image": True, "supports_prompt_queueing": True},
            {
                "type": "session_mode",
                "session_id": "raw-1",
                "current_mode_id": "default",
                "available_modes": [{"id": "default", "name": "Default"}],
                **FOUR,
            },
            {
                "type": "session_status",
                "session_id": "raw-1",
                "session_status": "new",
                "data": {"session_status": "new", "init": True},
                **FOUR,
            },
            {
                "type": "available_commands",
                "session_id": "raw-1",
                "available_commands": [{"name": "slow", "description": "d"}],
                **FOUR,
            },
        ]


async def test_a_turn_is_these_events_in_the_agents_order(tmp_path: Path):
    async with running(tmp_path) as rig, socket(rig) as connection:
        await session(connection)
        tool = {"toolCallId": "t1", "title": "Read app.py", "kind": "read", "rawInput": {"path": "app.py"}}
        result = [{"type": "content", "content": {"type": "text", "text": "x=1"}}]
        await prompt(
            connection,
            {"say": "Looking at "},
            {"update": {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}}},
            {"update": {"sessionUpdate": "tool_call", **tool}},
            {
                "update": {
                    "sessionUpdate": "tool_call_update",
                    "toolCallId": "t1",
                    "status": "completed",
                    "content": result,
                }
            },
            {"update": {"sessionUpdate": "tool_call", "toolCallId": "t3", "title": "x"}},
            {
                "end": {
                    "stopReason": "end_turn",
                    "usage": {"inputTokens": 900, "outputTokens": 40, "totalTokens": 940},
                }
            },
            {"say": "afterwards"},
        )
        events = [await read(connection) for _ in range(8)]

        assert [event for event in events if event["type"] == "complete"] == [
            {
                "type": "complete",
                "session_id": "raw-1",
                "prompt_generation": 3,
                "data": {"stop_reason": "end_turn"},
                "usage": {
                    "input_tokens": 900,
                    "output_tokens": 40,
                    "output_tokens_present": True,
                    "total_tokens": 940,
                },
                **FOUR,
            }
        ]
        assert events[0] == {"type": "message_chunk", "session_id": "raw-1", "text": "Looking at ", **FOUR}
        assert events[1] == {"type": "reasoning", "session_id": "raw-1", "reasoning_text": "hm", **FOUR}
        assert events[2] == {
            "type": "tool_call",
            "session_id": "raw-1",
            "tool_call_id": "t1",
            "tool_name": "read",
            "tool_title": "Read app.py",
            "tool_status": "in_progress",
            "normalized": {"kind": "read_file", "read_file": {"file_path": "app.py"}},
            **FOUR,
        }
        assert events[3]["tool_status"] == "complete"
        assert events[3]["normalized"]["read_file"]["output"] == {"content": "x=1", "line_count": 1}
        assert events[5] == {
            "type": "tool_update",
            "session_id": "raw-1",
            "tool_call_id": "t3",
            "tool_status": "cancelled",
            **FOUR,
        }
        assert [event["type"] for event in events[6:]] == ["complete", "message_chunk"]


async def test_a_permission_is_asked_listed_and_resolved_once(tmp_path: Path):
    async with running(tmp_path, session_id="sess-41", task_id="task-9") as rig, socket(rig) as connection:
        await session(connection)
        tool = {"rawInput": {"command": "curl --token hunter2hunter2", "cwd": "/w"}}
        await prompt(connection, {"ask": 90, "tool": tool}, {"answer": 90}, END)
        announced = await until(connection, type="tool_call")
        event = await until(connection, type="permission_request")
        ids = {"request_id": event["request_id"], "pending_id": event["pending_id"]}

        assert announced["tool_status"] == "pending_permission"
        assert re.fullmatch(r"raw-1-t1-\d{19}", event["pending_id"])
        assert event == {
            "type": "permission_request",
            "session_id": "sess-41",
            "tool_call_id": "t1",
            **ids,
            "permission_title": "Do it",
            "permission_options": [
                {"option_id": "allow", "name": "Allow", "kind": "allow_once"},
                {"option_id": "reject", "name": "Reject", "kind": "reject_once"},
            ],
            "action_type": "command",
            "action_details": {"raw_input": {"command": "curl --token [redacted]", "cwd": "/w"}},
            **FOUR,
        }

        listed = (await ask(connection, "agent.permissions.list", None))["payload"]
        assert listed["total"] == 1
        assert listed["permissions"][0]["task_id"] == "task-9"
        assert listed["permissions"][0]["action"] == {
            "type": "command",
            "command": "curl --token [redacted]",
            "cwd": "/w",
            "redacted": True,
        }

        async def failing(action: str, **payload: str) -> tuple[str, Any]:
            error = await ask(connection, action, payload)
            assert error["type"] == "error"
            assert error["payload"].get("details", {}).get("permission_code", "") in (
                "",
                error["payload"]["message"],
            )
            return error["payload"]["code"], error["payload"]["message"]

        resolve = "agent.permissions.resolve"
        missing = "request_id, pending_id, and option_id are required"
        assert await failing(resolve, **ids) == ("BAD_REQUEST", missing)
        assert await failing(resolve, **{**ids, "request_id": "?"}, option_id="allow") == (
            "NOT_FOUND",
            "permission_not_found",
        )
        assert await failing(resolve, **{**ids, "pending_id": "?"}, option_id="allow") == (
            "CONFLICT",
            "permission_stale",
        )
        assert await failing(resolve, **ids, option_id="maybe") == (
            "VALIDATION_ERROR",
            "permission_option_not_offered",
        )
        code, message = await failing("agent.permissions.respond", pending_id="?", option_id="allow")
        assert (code, message.endswith("permission_not_found")) == ("NOT_FOUND", True)
        code, message = await failing(
            "agent.permissions.respond", pending_id=ids["pending_id"], option_id="maybe"
        )
        assert (code, "was not offered" in message) == ("NOT_FOUND", True)

        resolved = await ask(connection, resolve, {**ids, "option_id": "reject"}, "last")
        assert resolved["payload"] == {
            **ids,
            "option_id": "reject",
            "option_kind": "reject_once",
            "status": "resolved",
        }
        assert await failing(resolve, **ids, option_id="reject") == (
            "CONFLICT",
            "permission_already_resolved",
        )


async def test_the_agent_gets_the_chosen_option_or_that_it_was_cancelled(tmp_path: Path):
    async with running(tmp_path) as rig, socket(rig) as connection:
        await session(connection)
        await prompt(connection, {"ask": "a"}, {"answer": "a"}, {"ask": "b"}, {"answer": "b"}, END)
        for turn in range(2):
            event = await until(connection, type="permission_request")
            payload = {"pending_id": event["pending_id"], "option_id": "allow", "cancelled": turn == 1}
            await connection.send(
                json.dumps(
                    {
                        "id": f"r{turn}",
                        "type": "request",
                        "action": "agent.permissions.respond",
                        "payload": payload,
                    }
                )
            )
            told = await until(connection, type="message_chunk")
            expected = {"outcome": "cancelled"} if turn else {"outcome": "selected", "optionId": "allow"}
            assert json.loads(told["text"]) == {"outcome": expected}


async def test_an_agent_cannot_forge_ids_through_meta(tmp_path: Path):
    """The ids of a question are those of the message, whatever `_meta` says."""
    async with running(tmp_path) as rig, socket(rig) as connection:
        await session(connection)
        forged = {"session_id": "evil", "tool_call": {"toolCallId": "evil"}, "options": []}
        await prompt(connection, {"ask": 1, "more": {"_meta": forged}}, {"answer": 1}, END)
        event = await until(connection, type="permission_request")

        assert event["session_id"] == "raw-1"
        assert event["tool_call_id"] == "t1"
        assert len(event["permission_options"]) == 2


async def test_a_new_prompt_cancels_what_is_still_asked(tmp_path: Path):
    async with running(tmp_path) as rig, socket(rig) as connection:
        await session(connection)
        await prompt(connection, {"ask": 1}, {"answer": 1}, END, generation=1)
        event = await until(connection, type="permission_request")
        await connection.send(
            json.dumps(
                {
                    "id": "p2",
                    "type": "request",
                    "action": "agent.prompt",
                    "payload": {"text": steps({"say": "two"}, END), "prompt_generation": 2},
                }
            )
        )
        cancelled = await until(connection, type="permission_cancelled")
        assert cancelled == {
            "type": "permission_cancelled",
            "session_id": "raw-1",
            "request_id": event["request_id"],
            "pending_id": event["pending_id"],
            **FOUR,
        }
        assert "cancelled" in (await until(connection, type="message_chunk"))["text"]
        assert (await until(connection, type="complete"))["prompt_generation"] == 1
        assert (await until(connection, type="complete"))["prompt_generation"] == 2


async def test_a_cancel_closes_the_open_tools_before_the_agent_hears_of_it(tmp_path: Path):
    async with running(tmp_path) as rig, socket(rig) as connection:
        await session(connection)
        await prompt(
            connection,
            {"update": {"sessionUpdate": "tool_call", "toolCallId": "t1", "title": "x"}},
            {"ask": 1, "tool": {"toolCallId": "t2"}},
            {"cancel": True},
            {"say": "stopping"},
            {"answer": 1},
            {"end": {"stopReason": "cancelled"}},
        )
        await until(connection, type="permission_request")
        await connection.send('{"id":"c","type":"request","action":"agent.cancel","payload":null}')
        frames: list[dict[str, Any]] = []
        while len(frames) < 7:
            frames.append(await read(connection))
        seen = [
            (
                frame["type"],
                frame.get("tool_call_id")
                or frame.get("text", "")[:8]
                or frame.get("data", {}).get("stop_reason"),
            )
            for frame in frames
            if "id" not in frame
        ]
        answer = next(frame for frame in frames if frame.get("id") == "c")
        assert answer["payload"] == {"success": True}
        assert seen[:2] == [("tool_update", "t1"), ("tool_update", "t2")]
        assert ("permission_cancelled", None) in seen
        assert seen[-1] == ("complete", "cancelled")


async def test_a_cancel_that_comes_right_after_its_prompt_stops_it(tmp_path: Path):
    async with running(tmp_path) as rig, socket(rig) as connection:
        await session(connection)
        text = steps({"cancel": True}, {"heard": True}, {"end": {"stopReason": "cancelled"}})
        for frame in (
            {"id": "1", "type": "request", "action": "agent.prompt", "payload": {"text": text}},
            {"id": "2", "type": "request", "action": "agent.cancel", "payload": None},
        ):
            await connection.send(json.dumps(frame))
        heard = await until(connection, type="message_chunk")

        assert heard["text"].endswith("session/prompt session/cancel")


async def test_errors_of_the_agent_end_the_turn_with_an_error(tmp_path: Path):
    async with running(tmp_path) as rig, socket(rig) as connection:
        await session(connection)
        overloaded = {"code": -32603, "message": "Internal error", "data": {"details": "529 overloaded"}}
        await prompt(connection, {"say": "x"}, {"error": overloaded})
        await until(connection, type="message_chunk")

        assert await read(connection) == {
            "type": "error",
            "error": "Internal error: 529 overloaded",
            "prompt_generation": 3,
            **FOUR,
        }


async def test_a_malformed_answer_ends_the_turn_with_an_error(tmp_path: Path):
    async with running(tmp_path) as rig, socket(rig) as connection:
        await session(connection)
        await prompt(connection, {"end": {"nonsense": 1}})
        error = await until(connection, type="error")

        assert "malformed" in error["error"]
        assert error["prompt_generation"] == 3


async def test_an_agent_that_closes_its_pipes_but_lives_on_ends_its_turn(tmp_path: Path):
    async with running(tmp_path) as rig, socket(rig) as connection:
        await session(connection)
        await prompt(connection, {"say": "x"}, {"close": True}, {"sleep": 60})
        error = await until(connection, type="error")

        assert error["prompt_generation"] == 3
        assert "exit_code" in error["data"]


async def test_an_idle_agent_that_crashes_says_so_and_one_that_leaves_does_not(tmp_path: Path):
    async with running(tmp_path) as rig, socket(rig) as connection:
        await session(connection)
        await prompt(connection, END, {"sleep": 0.1}, {"exit": 3})
        await until(connection, type="complete")
        error = await until(connection, type="error")
        assert error["data"] == {"exit_code": 3, "recent_stderr": []}
        assert "prompt_generation" not in error

        await rig.agent.start()
        await session(connection)
        await prompt(connection, END, {"sleep": 0.1}, {"exit": 0})
        await until(connection, type="complete")
        await eventually(lambda: rig.agent.status()["agent_status"] == "stopped")
        assert (await ask(connection, "agent.stderr", None))["payload"] == {"lines": []}


async def test_odd_lines_of_the_agent_harm_nobody(tmp_path: Path):
    """B20, B21, B22, B26: not JSON, not a message, NaN, lone surrogates, too deep, 3 MB in a line."""
    big = "x" * 3_000_000

    def chunk(text: str) -> str:
        content = '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":TEXT}}'
        params = '{"sessionId":"raw-1","update":UPDATE}'.replace("UPDATE", content.replace("TEXT", text))
        return '{"jsonrpc":"2.0","method":"session/update","params":PARAMS}'.replace("PARAMS", params)

    async with running(tmp_path) as rig, socket(rig) as connection:
        await session(connection)
        await prompt(
            connection,
            {"line": "Starting up..."},
            {"line": "[1,2]"},
            {"line": ""},
            {"line": '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"raw-1"}}'},
            {"line": '{"jsonrpc":"2.0","method":"session/update","params":7}'},
            {"line": '{"jsonrpc":"2.0","id":999,"result":{}}'},
            {"line": '{"jsonrpc":"2.0","method":"$/anything"}'},
            {"line": '{"a":' + "[" * 5_000 + "]" * 5_000 + "}"},
            {"line": chunk(r'"half \ud83d emoji"')},
            {"line": chunk(json.dumps(big))},
            {"line": chunk(r'"\u0000"')},
            {"update": {"sessionUpdate": "usage_update", "used": float("nan"), "size": 10}},
            {"update": {"sessionUpdate": "brand_new", "x": [1]}},
            {
                "send": {
                    "id": 5,
                    "method": "fs/read_text_file",
                    "params": {"sessionId": "raw-1", "path": "/x"},
                }
            },
            {"answer": 5},
            {
                "send": {
                    "id": 6,
                    "method": "terminal/create",
                    "params": {"sessionId": "raw-1", "command": "x"},
                }
            },
            {"answer": 6},
            END,
        )
        raw = await connection.recv()
        assert r'"text":"half \ud83d emoji"' in raw
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] != "complete":
            events.append(await read(connection))

        assert [event["type"] for event in events] == [
            "message_chunk",
            "message_chunk",
            "context_window",
            "acp_update",
            "message_chunk",
            "message_chunk",
            "complete",
        ]
        assert events[0]["text"] == big
        assert events[1]["text"] == "\0"
        assert events[3]["data"]["update"] == {"sessionUpdate": "brand_new", "x": [1]}
        assert json.loads(events[4]["text"])["code"] == -32601
        assert json.loads(events[5]["text"])["code"] == -32601


async def test_an_idle_foreground_hands_the_next_prompt_over(tmp_path: Path):
    async with running(tmp_path) as rig, socket(rig) as connection:
        await session(connection)
        await prompt(
            connection,
            {"update": {"sessionUpdate": "foreground_idle", "promptHandoff": True}},
            {"sleep": 0.2},
            {"update": {"sessionUpdate": "background_complete"}},
            END,
            generation=1,
        )
        idle = await until(connection, type="foreground_idle")
        assert idle == {
            "type": "foreground_idle",
            "session_id": "raw-1",
            "prompt_generation": 1,
            "data": {"prompt_handoff": True},
            **FOUR,
        }
        await prompt(connection, {"say": "two"}, {"sleep": 0.4}, END, generation=2)
        await until(connection, type="background_complete")
        complete = await until(connection, type="complete")
        assert complete["prompt_generation"] == 2


@pytest.mark.parametrize(
    "frame",
    [
        "not json",
        "[]",
        '{"id":1,"type":"request","action":"agent.stderr"}',
        '{"id":"x","type":"request","action":"agent.stderr","timestamp":""}',
        '{"id":"x","type":"request","action":"agent.stderr","timestamp":1933135628120}',
        '{"id":"x","type":"request","action":"agent.stderr","metadata":{"a":1}}',
        '{"id":"x","type":"notification","action":"agent.stderr"}',
        '{"id":"x","type":"response","action":"agent.stderr","payload":{}}',
        '{"id":"x","type":"error","action":"mcp.list_tasks","payload":null}',
        "[" * 100_000 + "]" * 100_000,
        b"binary",
    ],
)
async def test_a_frame_that_is_no_request_is_ignored_and_the_connection_stays(
    tmp_path: Path, frame: str | bytes
):
    """B22, B86: also replies to nothing."""
    async with agent_rig(tmp_path, *RAW_AGENT) as rig, socket(rig) as connection:
        await connection.send(frame)
        await connection.send('{"id":"y","type":"request","action":"agent.stderr"}')

        assert (await read(connection))["id"] == "y"


async def test_wrong_payloads_and_states_are_told_by_their_codes(tmp_path: Path):
    async with agent_rig(tmp_path, *RAW_AGENT) as rig, socket(rig) as connection:

        async def error(action: str, payload: Any) -> tuple[str, str]:
            answer = await ask(connection, action, payload)
            assert (answer["type"], answer["action"]) == ("error", action)
            return answer["payload"]["code"], answer["payload"]["message"]

        assert await error("agent.frobnicate", {}) == ("UNKNOWN_ACTION", "unknown action: agent.frobnicate")
        assert await error("agent.initialize", {}) == ("INTERNAL_ERROR", "agent not running")
        await rig.agent.start()
        assert (await error("agent.initialize", {"client_name": 7}))[0] == "BAD_REQUEST"
        assert (await error("agent.initialize", "x"))[0] == "BAD_REQUEST"
        assert (await error("agent.session.new", {"cwd": ""}))[0] == "INTERNAL_ERROR"
        await ask(connection, "agent.initialize", {})
        no_session = ("BAD_REQUEST", "no active session - call new_session first")
        assert await error("agent.prompt", {"text": "x"}) == no_session
        assert await error("agent.session.set_mode", {"mode_id": "x"}) == no_session
        assert (await error("agent.session.new", {"cwd": "", "mcp_servers": [7]}))[0] == "BAD_REQUEST"
        assert (await error("agent.session.new", {"mcp_servers": [{"name": "a", "args": "x"}]}))[
            0
        ] == "BAD_REQUEST"
        assert (await error("agent.session.load", {}))[0] == "BAD_REQUEST"
        await ask(connection, "agent.session.new", {"cwd": ""})
        for payload in (
            {"text": 1},
            {"text": "x", "prompt_generation": "3"},
            {"text": "x", "attachments": {}},
        ):
            code, message = await error("agent.prompt", payload)
            assert (code, message.startswith("invalid request: ")) == ("BAD_REQUEST", True)
        assert (await error("agent.session.authenticate", {}))[0] == "BAD_REQUEST"
        assert (await error("agent.session.set_model", {"model_id": "x"})) == (
            "INTERNAL_ERROR",
            "the agent offers no choice of models",
        )
        assert (await error("agent.permissions.cancel", {"request_id": "x"}))[0] == "BAD_REQUEST"
        assert (await ask(connection, "agent.cancel", None))["payload"] == {"success": True}


async def test_a_slow_request_does_not_hold_up_another(tmp_path: Path):
    """B31"""
    async with running(tmp_path, answers(initialize=None)) as rig, socket(rig) as connection:
        await rig.agent.stop()
        rig.agent.configure(command="x", agent_args=["sleep", "60"])
        await rig.agent.start()
        await connection.send('{"id":"slow","type":"request","action":"agent.initialize","payload":{}}')

        assert (await ask(connection, "agent.stderr", None))["payload"] == {"lines": []}


async def test_an_mcp_request_waits_for_a_backend_and_gets_its_answer(tmp_path: Path):
    async with agent_rig(tmp_path, *RAW_AGENT) as rig:
        asking = asyncio.create_task(rig.agent.mcp_request("mcp.list_tasks", {"workflow_id": "wf-3"}))
        refused = asyncio.create_task(
            rig.agent.mcp_request("mcp.list_plugin_tools", {"surface": "kanban-task"})
        )
        async with socket(rig) as connection:
            frame = await read(connection)
            assert {name: frame[name] for name in ("type", "action", "payload")} == {
                "type": "request",
                "action": "mcp.list_tasks",
                "payload": {"workflow_id": "wf-3"},
            }
            assert "timestamp" in frame
            other = await read(connection)
        async with socket(rig) as connection:  # the answer may come over any connection
            await connection.send(
                json.dumps({"id": frame["id"], "type": "response", "payload": {"tasks": []}})
            )
            await connection.send(json.dumps({"id": frame["id"], "type": "response", "payload": "again"}))
            failure = {"code": "UNKNOWN_ACTION", "message": "not supported"}
            await connection.send(json.dumps({"id": other["id"], "type": "error", "payload": failure}))

            assert await asking == {"tasks": []}
            with pytest.raises(Exception, match=r"\[UNKNOWN_ACTION\]: not supported"):
                await refused


async def test_a_new_session_fails_the_mcp_requests_of_the_old_one(tmp_path: Path):
    async with running(tmp_path) as rig, socket(rig) as connection:
        await session(connection)
        asking = asyncio.create_task(rig.agent.mcp_request("mcp.list_tasks", None))
        await until(connection, action="mcp.list_tasks")
        await ask(connection, "agent.session.reset", {"cwd": ""}, "reset")
        assert not asking.done()
        await ask(connection, "agent.session.new", {"cwd": ""}, "new")

        with pytest.raises(Exception, match="session reset"):
            await asking


async def test_a_newer_connection_has_the_stream_and_the_older_one_is_closed(tmp_path: Path):
    async with running(tmp_path) as rig, socket(rig, **{"X-Tieline-Epoch": "7"}) as old:
        await session(old)
        async with socket(rig, **{"X-Tieline-Epoch": "8"}) as new:
            await old.wait_closed()
            await prompt(new, {"say": "x"}, END)
            await until(new, type="complete")


async def test_a_connection_of_a_lower_epoch_is_refused_before_the_upgrade(tmp_path: Path):
    async with running(tmp_path) as rig, socket(rig, **{"X-Tieline-Epoch": "8"}) as owner:
        for header in ({"X-Tieline-Epoch": "7"}, {}):
            with pytest.raises(InvalidStatus) as refused:
                await connect(rig.url, additional_headers=header)
            assert refused.value.response.status_code == 409
            assert json.loads(refused.value.response.body)["expected_epoch"] == 8

        assert (await ask(owner, "agent.stderr", None))["type"] == "response"


async def test_without_epochs_the_newest_connection_has_the_stream(tmp_path: Path):
    async with running(tmp_path) as rig, socket(rig) as old:
        await session(old)
        async with socket(rig) as new:
            await prompt(new, {"say": "x"}, END)

            assert (await until(new, type="complete"))["prompt_generation"] == 3


async def test_broken_text_costs_only_its_own_connection(tmp_path: Path):
    """B19: closed with 1007; the turn goes on and the next connection hears the rest."""
    async with running(tmp_path) as rig:
        async with socket(rig) as connection:
            await session(connection)
            await prompt(connection, {"say": "one"}, {"sleep": 0.2}, {"say": "two"}, END)
            await until(connection, type="message_chunk")
            await connection.send(b"\xff\xfe", text=True)
            await connection.wait_closed()
            assert connection.close_code == 1007
        async with socket(rig) as connection:
            assert (await until(connection, type="message_chunk"))["text"] == "two"
            assert (await until(connection, type="complete"))["prompt_generation"] == 3


async def test_the_end_of_the_instance_closes_the_stream_as_going_away(tmp_path: Path):
    async with running(tmp_path) as rig, socket(rig) as connection:
        await rig.agent.__aexit__()
        await connection.wait_closed()

        assert connection.close_code == 1001
