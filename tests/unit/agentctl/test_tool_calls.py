from typing import Any

from tieline_agentctl.tool_calls import MOST_TOOLS, ToolCalls


def call(id: str = "t1", **more: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call", "toolCallId": id, "title": "Read app.py", "kind": "read"} | more


def update(id: str = "t1", **more: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call_update", "toolCallId": id} | more


def test_a_started_tool_is_in_progress_unless_it_says_otherwise():
    tools = ToolCalls()

    event = tools.event("s1", call(rawInput={"path": "app.py"}))

    assert event["type"] == "tool_call"
    assert event["session_id"] == "s1"
    assert event["tool_call_id"] == "t1"
    assert event["tool_name"] == "read"
    assert event["tool_title"] == "Read app.py"
    assert event["tool_status"] == "in_progress"
    assert event["normalized"] == {"kind": "read_file", "read_file": {"file_path": "app.py"}}


def test_a_tool_that_is_born_finished_carries_the_raw_status():
    assert ToolCalls().event("s1", call(status="completed"))["tool_status"] == "completed"


def test_an_update_tells_the_whole_tool_though_the_agent_told_only_the_change():
    tools = ToolCalls()
    tools.event("s1", call(rawInput={"path": "app.py"}))

    event = tools.event(
        "s1",
        update(status="completed", content=[{"type": "content", "content": {"type": "text", "text": "x=1"}}]),
    )

    assert event["type"] == "tool_update"
    assert event["tool_status"] == "complete"
    assert "tool_name" not in event
    assert "tool_title" not in event
    assert event["normalized"]["read_file"] == {
        "file_path": "app.py",
        "output": {"content": "x=1", "line_count": 1},
    }
    assert event["tool_call_contents"] == [{"type": "content", "content": {"type": "text", "text": "x=1"}}]


def test_statuses_of_updates_are_translated():
    tools = ToolCalls()

    assert tools.event("s1", update(status="failed"))["tool_status"] == "error"
    assert tools.event("s1", update(status="pending"))["tool_status"] == "pending"
    assert "tool_status" not in tools.event("s1", update())


def test_a_diff_tells_a_new_file_from_a_changed_one():
    contents = [
        {"type": "diff", "path": "a", "oldText": "", "newText": "b"},
        {"type": "diff", "path": "n", "newText": "b"},
        {"type": "terminal", "terminalId": "x"},
    ]

    assert ToolCalls().event("s1", call(content=contents))["tool_call_contents"] == [
        {"type": "diff", "path": "a", "old_text": "", "new_text": "b"},
        {"type": "diff", "path": "n", "new_text": "b"},
        {"type": "terminal", "terminal_id": "x"},
    ]


def test_an_mcp_tool_is_called_by_its_own_name():
    tool = call(
        kind="other", _meta={"vendor": {"toolName": "mcp__kandev__list_tasks", "parentToolUseId": "p1"}}
    )

    event = ToolCalls().event("s1", tool)

    assert event["tool_name"] == "mcp__kandev__list_tasks"
    assert event["parent_tool_call_id"] == "p1"
    assert ToolCalls().event("s1", call(kind=None))["tool_name"] == "other"


def test_a_tool_that_asks_before_it_is_told_of_is_announced():
    tools = ToolCalls()
    assert not tools.knows("t1")

    event = tools.announced("s1", {"toolCallId": "t1", "title": "Run", "kind": "execute"})

    assert tools.knows("t1")
    assert event["type"] == "tool_call"
    assert event["tool_status"] == "pending_permission"
    assert event["tool_name"] == "execute"
    assert "normalized" not in event


def test_tools_still_open_are_cancelled_once():
    tools = ToolCalls()
    tools.event("s1", call("t1"))
    tools.event("s1", call("t2"))
    tools.event("s1", update("t2", status="completed"))

    cancelled = tools.cancelled("s1")

    assert [(event["tool_call_id"], event["tool_status"]) for event in cancelled] == [("t1", "cancelled")]
    assert tools.cancelled("s1") == []


def test_a_tool_that_goes_on_after_its_cancel_is_cancelled_again():
    tools = ToolCalls()
    tools.event("s1", call("t1"))
    tools.cancelled("s1")
    tools.event("s1", update("t1", status="in_progress"))

    assert len(tools.cancelled("s1")) == 1


def test_a_cancel_of_the_prompt_spares_subagents():
    tools = ToolCalls()
    tools.event("s1", call("t1", rawInput={"subagent_type": "explore", "prompt": "look"}))

    assert tools.cancelled("s1", leave_detached=True) == []
    assert len(tools.cancelled("s1")) == 1


def test_only_so_many_tools_are_remembered():
    tools = ToolCalls()
    for number in range(MOST_TOOLS + 1):
        tools.known({"toolCallId": f"t{number}"})

    assert not tools.knows("t0")
    assert tools.knows("t1")
