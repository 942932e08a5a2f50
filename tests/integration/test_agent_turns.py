"""Turns of the real example agent, as a backend sees them on the agent stream."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.support.agent_rig import EXAMPLE_AGENT, RAW_AGENT, agent_rig, steps
from tests.support.eventually import eventually

pytestmark = pytest.mark.timeout(30)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


async def test_an_answer_arrives_to_the_byte_and_complete_comes_last(tmp_path: Path):
    """B89: blank lines, indentation, NUL, emoji, a line of 1 MiB; then the reasoning, plan and window of one turn."""
    async with agent_rig(tmp_path) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            session = await backend.opened()
            await backend.prompt(
                "say Hello\\n\\n    indented\\t👋\\u0000 end  \n"
                "big 1048576\nchunks 3 \\n\nthink hm, well\nplan A | B\nusage 1200 200000",
                7,
            )
            complete = await backend.until("complete")

            big = "0123456789abcdef" * 65_536
            assert backend.text == f"Hello\n\n    indented\t👋\0 end  {big}\n\n\n"
            assert "".join(event["reasoning_text"] for event in backend.of("reasoning")) == "hm, well"
            assert [entry["description"] for entry in backend.of("plan")[0]["plan_entries"]] == ["A", "B"]
            assert backend.of("context_window")[0]["context_window_remaining"] == 198_800
            assert complete["session_id"] == session
            assert complete["prompt_generation"] == 7
            assert complete["data"] == {"stop_reason": "end_turn"}
            assert complete["usage"]["total_tokens"] == 1_200
            assert backend.types()[-1] == "complete"
            assert rig.agent.status()["prompt_generation"] == 7
            assert rig.agent.status()["busy"] is False


async def test_the_demonstration_asks_before_it_writes_and_runs(tmp_path: Path):
    async with agent_rig(tmp_path) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.opened()
            await backend.prompt("hello there")
            first = await backend.until("permission_request")
            assert not (tmp_path / "hello.txt").exists()
            allow = {name: first[name] for name in ("request_id", "pending_id")} | {"option_id": "allow"}
            resolved = await backend.do("agent.permissions.resolve", allow)
            second = await backend.until("permission_request", 2)
            await backend.do(
                "agent.permissions.respond", {"pending_id": second["pending_id"], "option_id": "allow"}
            )
            await backend.until("complete")

            assert (first["action_type"], second["action_type"]) == ("file_write", "command")
            assert resolved["option_kind"] == "allow_once"
            assert resolved["status"] == "resolved"
            assert (tmp_path / "hello.txt").read_text() == "Hello from the example agent.\n"
            assert backend.text.endswith("Done.")
            kinds = [event["normalized"]["kind"] for event in backend.of("tool_call")]
            assert kinds == ["modify_file", "shell_exec"]
            done = backend.of("tool_update")[-1]["normalized"]["shell_exec"]["output"]
            assert done == {"stdout": "Hello from the example agent.\n", "exit_code": 0}


async def test_a_refusal_and_a_cancelled_question_reach_the_agent(tmp_path: Path):
    async with agent_rig(tmp_path) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.opened()
            await backend.prompt("write a.txt x\nask Really?\nsay ok")
            first = await backend.until("permission_request")
            await backend.do(
                "agent.permissions.respond", {"pending_id": first["pending_id"], "option_id": "reject"}
            )
            second = await backend.until("permission_request", 2)
            ids = {name: second[name] for name in ("request_id", "pending_id")}
            assert (await backend.do("agent.permissions.cancel", ids))["status"] == "cancelled"
            await backend.until("complete")

            assert not (tmp_path / "a.txt").exists()
            assert backend.text == "I was not allowed to.cancelledok"
            assert [event["pending_id"] for event in backend.of("permission_cancelled")] == [
                second["pending_id"]
            ]


async def test_modes_models_and_options_are_told_and_set(tmp_path: Path):
    async with agent_rig(tmp_path) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            info = await backend.do("agent.initialize", {"client_name": "t", "client_version": "1"})
            made = await backend.do("agent.session.new", {"cwd": "/nowhere"})
            await backend.until("session_status")
            order = [name for name in backend.types() if name != "mcp_attachment"]

            assert info["agent_info"] == {"name": "tieline-example-agent", "version": "1"}
            assert order == ["agent_capabilities", "session_mode", "session_models", "session_status"]
            assert backend.frames[0]["supports_prompt_queueing"] is True
            assert made["model_state"]["current_model_id"] == "example-small"

            await backend.do("agent.session.set_mode", {"session_id": "x", "mode_id": "plan"})
            await backend.do("agent.session.set_model", {"model_id": "example-large"})
            await backend.do("agent.session.set_config_option", {"config_id": "effort", "value": "high"})
            await backend.until("session_models", 3)
            wrong = await backend.ask("agent.session.set_mode", {"mode_id": "nonsense"})

            assert backend.of("session_mode")[-1]["current_mode_id"] == "plan"
            assert backend.of("session_models")[1]["current_model_id"] == "example-large"
            assert backend.of("session_models")[2]["data"]["config_options_config_id"] == "effort"
            assert (wrong["type"], wrong["payload"]["code"]) == ("error", "BAD_REQUEST")
            assert "no such mode" in wrong["payload"]["message"]
            assert "plan" in wrong["payload"]["message"]


async def test_a_loaded_session_is_not_heard_again_but_goes_on(tmp_path: Path):
    """B68: neither the replayed history nor its stragglers reach the backend; the plan and the new turn do."""
    async with agent_rig(tmp_path) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            session = await backend.opened()
            await backend.prompt("say old words\nthink old thoughts\nplan A | B")
            await backend.until("complete")
            await rig.agent.stop()
            await rig.agent.start()
            backend.frames.clear()
            await backend.do("agent.initialize", {"client_name": "t", "client_version": "1"})
            loaded = await backend.do("agent.session.load", {"session_id": session})
            await backend.prompt("say new words", 2)
            await backend.until("complete")
            unknown = await backend.ask("agent.session.load", {"session_id": "example-000000000000"})

            assert loaded["session_id"] == session
            assert backend.text == "new words"
            assert not backend.of("reasoning", "tool_call")
            assert len(backend.of("plan")) == 1
            assert backend.of("session_status")[0]["session_status"] == "resumed"
            assert unknown["type"] == "error"


async def test_a_cancel_ends_the_turn_as_cancelled(tmp_path: Path):
    async with agent_rig(tmp_path) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.opened()
            await backend.prompt("run sleep 60", 3)
            asked = await backend.until("permission_request")
            await backend.do(
                "agent.permissions.respond", {"pending_id": asked["pending_id"], "option_id": "allow"}
            )
            await backend.until("tool_update")
            assert await backend.do("agent.cancel") == {"success": True}
            complete = await backend.until("complete")

            assert complete["data"] == {"stop_reason": "cancelled"}
            assert [event["tool_status"] for event in backend.of("tool_update")][-1] == "cancelled"
            assert await backend.do("agent.cancel") == {"success": True}  # nothing runs any more


async def test_a_stubborn_agent_does_not_acknowledge_a_cancel_and_the_next_prompt_runs(tmp_path: Path):
    """B74: five clicks, one answer each; the abandoned prompt tells nothing."""
    async with agent_rig(tmp_path, *EXAMPLE_AGENT) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.opened()
            await backend.prompt("stubborn\nsay one\nwait 4\nsay two", 1)
            await backend.until("message_chunk")
            answers = [await backend.send("agent.cancel") for _ in range(5)]
            first = (await answers[0])["payload"]
            assert first["success"] is False
            assert first["not_acknowledged"] is True
            assert "not acknowledged" in first["error"]
            assert {(await answer)["payload"]["success"] for answer in answers} == {False}
            assert rig.agent.status()["busy"] is False
            await backend.prompt("say three", 2)
            await backend.until("complete")

            assert [event["prompt_generation"] for event in backend.of("complete", "error")] == [2]


async def test_a_second_prompt_waits_and_a_steering_one_takes_over(tmp_path: Path):
    async with agent_rig(tmp_path) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.opened()
            await backend.prompt("wait 0.2\nsay one.", 1)
            await backend.prompt("wait 60\nsay two.", 2)
            assert rig.agent.status()["busy"] is True
            await backend.until("complete")
            await backend.prompt("say three.", 3, steer=True)
            await backend.until("complete", 2)

            assert backend.text == "one.three."
            assert [event["prompt_generation"] for event in backend.of("complete")] == [1, 3]


async def test_a_steering_prompt_waits_when_the_agent_takes_one_at_a_time(tmp_path: Path):
    async with agent_rig(tmp_path, *EXAMPLE_AGENT, "--no-queueing") as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.opened()
            await backend.prompt("wait 0.2\nsay one.", 1)
            await backend.prompt("say two.", 2, steer=True)
            await backend.until("complete", 2)

            assert backend.text == "one.two."


async def test_a_crash_ends_the_turn_with_the_exit_code_and_what_stderr_said(tmp_path: Path):
    async with agent_rig(tmp_path) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.opened()
            await backend.prompt("say before\nstderr \\u001b[31mboom\\u001b[0m\nchild 60\nask Now?", 1)
            await backend.until("permission_request")
            child = int(backend.text.removeprefix("before"))
            lines = await backend.do("agent.stderr")
            await backend.prompt("crash 7", 2)
            error = await backend.until("error")
            if "prompt_generation" not in error:
                error = await backend.until("error", 2)
            await eventually(lambda: gone(child))

            assert lines == {"lines": ["boom"]}
            assert error["error"].startswith("Agent process exited with code 7: boom")
            assert error["data"] == {"exit_code": 7, "recent_stderr": ["boom"]}
            assert backend.of("permission_cancelled")
            status = rig.agent.status()
            assert status["agent_status"] == "error"
            assert status["process_info"] == {
                "status": "error",
                "exit_code": 7,
                "exit_error": "exit status 7",
            }
            assert status["busy"] is False
            after = await backend.ask("agent.prompt", {"text": "x"})
            assert after["payload"] == {"code": "INTERNAL_ERROR", "message": "agent not running: boom"}
            await rig.agent.start()
            await backend.opened()


async def test_an_agent_that_exits_with_0_in_the_middle_of_a_turn_ends_it(tmp_path: Path):
    async with agent_rig(tmp_path) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.opened()
            await backend.prompt("say before\nexit", 5)
            error = await backend.until("error")

            assert backend.types() == ["message_chunk", "error"]
            assert error["prompt_generation"] == 5
            assert error["data"]["exit_code"] == 0
            assert rig.agent.status()["agent_status"] == "stopped"


async def test_a_stop_ends_the_turn_and_every_process_that_the_agent_started(tmp_path: Path):
    async with agent_rig(tmp_path) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.opened()
            await backend.prompt("child 60\nwait 60", 9)
            await backend.until("message_chunk")
            child, agent = int(backend.text), rig.agent.status()["process_info"]["pid"]
            assert os.getpgid(agent) == agent
            await rig.agent.stop()

            assert gone(child)
            assert gone(agent)
            error = await backend.until("error")
            assert error["prompt_generation"] == 9
            assert rig.agent.status()["agent_status"] == "stopped"
            await rig.agent.stop()


async def test_words_after_the_turn_are_ended_by_a_synthetic_complete(tmp_path: Path):
    async with agent_rig(tmp_path, async_idle=0.1) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.opened()
            await backend.prompt("late 0.05 by the way\nsay now", 4)
            await backend.until("complete", 2)

            first, second = backend.of("complete")
            assert backend.text == "nowby the way"
            assert first["prompt_generation"] == 4
            assert "prompt_generation" not in second
            assert second["data"] == {
                "stop_reason": "end_turn",
                "synthetic": True,
                "synthetic_reason": "async_turn_idle",
            }


@pytest.mark.parametrize(
    ("action", "payload"),
    [
        ("set_model", {"model_id": "no-such-model"}),
        ("set_config_option", {"config_id": "effort", "value": "no-such-effort"}),
        ("set_config_option", {"config_id": "no-such-option", "value": "x"}),
        ("authenticate", {"method_id": "no-such-method"}),
    ],
)
async def test_what_the_agent_does_not_offer_is_a_bad_request(
    tmp_path: Path, action: str, payload: dict[str, str]
) -> None:
    async with agent_rig(tmp_path, *EXAMPLE_AGENT) as rig, rig.backend() as backend:
        await rig.agent.start()
        await backend.opened()
        answer = await backend.ask(f"agent.session.{action}", payload)

    assert (answer["type"], answer["payload"]["code"]) == ("error", "BAD_REQUEST")
    assert "no such" in answer["payload"]["message"]


async def test_an_agent_that_wants_a_login_says_so_once_and_takes_sessions_after_it(tmp_path: Path):
    async with agent_rig(tmp_path, *EXAMPLE_AGENT, "--must-log-in") as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.do("agent.initialize", {"client_name": "t", "client_version": "1"})
            refused = await backend.ask("agent.session.new", {"cwd": ""})
            told = await backend.until("auth_required")
            await backend.do("agent.session.authenticate", {"method_id": told["auth_methods"][0]["id"]})
            made = await backend.do("agent.session.new", {"cwd": ""})

            assert refused["payload"]["code"] == "INTERNAL_ERROR"
            assert told["error"] == "Authentication required"
            assert made["success"] is True


async def test_auto_approval_asks_nobody(tmp_path: Path):
    async with agent_rig(tmp_path, auto_approve=True) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.opened()
            await backend.prompt("write a.txt x\nservers")
            await backend.until("complete")

            assert (tmp_path / "a.txt").read_text() == "x"
            assert not backend.of("permission_request")
            assert backend.text == "kandev:http"


async def test_a_turn_outlives_its_socket_and_the_next_one_gets_what_it_missed(tmp_path: Path):
    async with agent_rig(tmp_path) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            session = await backend.opened()
            await backend.prompt("say one \nwait 0.3\nsay two", 1)
            await backend.until("message_chunk")
        await eventually(lambda: not rig.agent.status()["busy"])
        async with rig.backend() as backend:
            complete = await backend.until("complete")

            assert complete["session_id"] == session
            assert backend.text == "two"


async def test_an_agent_is_configured_before_it_starts(tmp_path: Path):
    async with agent_rig(tmp_path, "false") as rig:
        rig.agent.configure(
            command="x", agent_args=[*EXAMPLE_AGENT], env={"GREETING": "hi"}, approval_policy="never"
        )
        started = await rig.agent.start()
        with pytest.raises(Exception, match="already running"):
            await rig.agent.start()
        with pytest.raises(Exception, match="cannot configure while agent is running"):
            rig.agent.configure(command="x", agent_args=None)
        async with rig.backend() as backend:
            await backend.opened()
            await backend.prompt("run echo $GREETING; pwd")
            asked = await backend.until("permission_request")
            await backend.do(
                "agent.permissions.respond", {"pending_id": asked["pending_id"], "option_id": "always"}
            )
            await backend.until("complete")
            shown = backend.of("tool_update")[-1]["normalized"]["shell_exec"]["output"]["stdout"]

            assert started == rig.agent.command == " ".join(EXAMPLE_AGENT)
            assert shown == f"hi\n{tmp_path}\n"


async def test_a_command_that_does_not_exist_is_a_clear_error(tmp_path: Path):
    async with agent_rig(tmp_path, "no-such-agent-anywhere") as rig:
        with pytest.raises(Exception, match="failed to start agent"):
            await rig.agent.start()
        assert rig.agent.status()["agent_status"] == "error"
        await asyncio.wait_for(rig.agent.stop(), 1)


async def test_an_agent_and_what_it_asks_the_backend_for_belong_to_the_trace_of_the_prompt(tmp_path: Path):
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    text = steps({"meta": True}, {"cancel": True}, {"end": {"stopReason": "cancelled"}})
    async with agent_rig(tmp_path, *RAW_AGENT) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.opened()
            payload = {"text": text, "prompt_generation": 1}
            await (await backend.send("agent.prompt", payload, metadata=trace))
            await backend.until("message_chunk")
            asked = asyncio.create_task(rig.agent.mcp_request("mcp.x", {}))
            came = await backend.until("request")
            await backend.do("agent.cancel")
            await backend.prompt(steps({"meta": True}, {"end": {"stopReason": "end_turn"}}), 2)
            await backend.until("complete", 2)
            asked.cancel()
            await asyncio.wait([asked])

    assert [event["text"] for event in backend.of("message_chunk")] == [json.dumps(trace), "null"]
    assert came["metadata"] == trace
