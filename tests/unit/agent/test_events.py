"""Events of a thread as clients see them."""

from tieline_agent import events, results
from tieline_agent.assembly import Usage
from tieline_protocol.errors import Code


def test_a_users_message_names_its_run_and_has_resources_where_there_are_some():
    resource = {"kind": "system", "subkind": "remote", "content": "browser"}

    assert "resources" not in events.user_message("m", "r", "hi")
    assert events.user_message("m", "r", "hi", [resource]) == {
        "type": "message",
        "message_id": "m",
        "role": "user",
        "content": "hi",
        "run_id": "r",
        "resources": [resource],
    }


def test_a_run_tells_its_states():
    assert events.run_queued("r")["state"] == "queued"
    assert events.run_running("r", 7, {"dropped_tools": ["a/b"], "state": "odd"}) == {
        "type": "run",
        "run_id": "r",
        "state": "running",
        "started": 7,
        "dropped_tools": ["a/b"],
    }
    ended = events.run_ended(
        "r", "error", Usage(1, 2, estimated=True), {"code": "timeout", "message": "late"}
    )

    assert ended["usage"] == {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "estimated": True}
    assert ended["error"] == {"code": "timeout", "message": "late"}
    assert "error" not in events.run_ended("r", "answer", Usage())


def test_an_answer_has_calls_only_where_it_has_some():
    call = {"id": "a", "name": "f", "arguments": "{}"}

    assert "tool_calls" not in events.answer("r", "m", "hi", "stop", Usage())
    assert events.answer("r", "m", "", "tool_calls", Usage(), [call])["tool_calls"] == [call]
    assert events.interrupted("r", "m", "hal")["interrupted"] is True


def test_pieces_and_calls_say_where_they_belong():
    assert events.delta("r", "m", "x") == {"type": "delta", "run_id": "r", "message_id": "m", "text": "x"}
    assert events.reasoning("r", "m", "x")["type"] == "reasoning"
    assert events.tool_call("r", "c", "a__f", "a", "f", {"x": 1}) == {
        "type": "tool_call",
        "run_id": "r",
        "tool_call_id": "c",
        "name": "a__f",
        "remote": "a",
        "function": "f",
        "arguments": {"x": 1},
    }
    assert events.tool_progress("r", "c", {"progress": 1, "type": "odd"})["type"] == "tool_progress"


def test_a_result_has_either_a_result_or_an_error_with_its_code():
    assert events.tool_result("r", "c", results.success(None)) == {
        "type": "tool_result",
        "run_id": "r",
        "tool_call_id": "c",
        "result": None,
    }
    failed = events.tool_result("r", "c", results.failure(Code.BUSY, "later"))

    assert (failed["error"], failed["code"], "result" in failed) == ("later", "busy", False)
