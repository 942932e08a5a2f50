"""A user's remotes as a coding agent sees them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tieline_protocol.errors import Code, Refused
from tieline_streams import plugin_tools
from tieline_streams.plugin_tools import Snapshots

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def remote(name: str, *functions: str) -> dict[str, Any]:
    found = [{"name": one, "description": f"does {one}", "parameters": SCHEMA} for one in functions]
    return {"remotename": name, "functions": found}


def test_a_function_is_a_tool_in_the_daemons_spelling() -> None:
    (tool,), dropped = plugin_tools.tools([remote("browser", "open_tab")], "kanban-task")

    assert tool == {
        "plugin_id": "browser",
        "plugin_display_name": "browser",
        "local_name": "open_tab",
        "exposed_name": "browser__open_tab",
        "description": "does open_tab",
        "surfaces": ["kanban-task"],
        "input_schema": SCHEMA,
        "read_only_hint": False,
        "destructive_hint": True,
        "idempotent_hint": False,
        "open_world_hint": True,
    }
    assert dropped == []


@pytest.mark.parametrize("surface", [None, "", 5])
def test_an_agent_that_does_not_say_where_it_is_gets_tools_for_everywhere(surface: object) -> None:
    assert plugin_tools.tools([remote("r", "f")], surface)[0][0]["surfaces"] == []


def test_whatever_the_names_are_the_invocation_of_each_tool_leads_to_its_function() -> None:
    """B09, B11: names with dots, blanks and accents, and such that look alike once fitted."""
    remotes = [remote("my browser", "tab.open", "tab_open", "täb"), remote("my_browser", "tab.open")]
    tools, _ = plugin_tools.tools(remotes, "s")
    led = [plugin_tools.invocation(tool, ["my browser", "my_browser"]).pair for tool in tools]

    assert len({tool["exposed_name"] for tool in tools}) == 4
    assert led == [(one["remotename"], function["name"]) for one in remotes for function in one["functions"]]


def test_of_more_than_128_functions_the_rest_is_dropped_and_told() -> None:
    """B14."""
    remotes = [remote(f"r{n}", *(f"f{i}" for i in range(50))) for n in range(3)]
    tools, dropped = plugin_tools.tools(remotes, "s")

    assert (len(tools), len(dropped)) == (128, 22)


def test_the_revision_rises_with_every_change_and_with_nothing_else() -> None:
    snapshots = Snapshots(17)
    one, two = [{"exposed_name": "a"}], [{"exposed_name": "b"}]
    told = [snapshots.of(tools) for tools in ([], [], one, list(one), two, one)]

    assert [snapshot["revision"] for snapshot in told] == [1, 1, 2, 2, 3, 4]
    assert {snapshot["generation"] for snapshot in told} == {"17"}
    assert told[-1]["tools"] == one


def test_arguments_that_are_absent_are_none_given_and_others_pass_as_they_are() -> None:
    asked = {"plugin_id": "r", "local_name": "f"}

    assert plugin_tools.invocation(asked, ["r"]) == (("r", "f"), {})
    assert plugin_tools.invocation({**asked, "arguments": None}, ["r"]).arguments == {}
    assert plugin_tools.invocation({**asked, "arguments": [1]}, ["r"]).arguments == [1]


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"plugin_id": "other", "local_name": "f"}, Code.NOT_FOUND),
        ({"plugin_id": 5, "local_name": "f"}, Code.BAD_REQUEST),
        ({"plugin_id": "r"}, Code.BAD_REQUEST),
    ],
)
def test_only_functions_of_the_sessions_own_remotes_can_be_invoked(
    payload: dict[str, Any], code: Code
) -> None:
    with pytest.raises(Refused) as caught:
        plugin_tools.invocation(payload, ["r"])

    assert caught.value.code is code


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("plain", "plain"),
        ("", '""'),
        (0, "0"),
        (None, "null"),
        (False, "false"),
        ([], "[]"),
        ({}, "{}"),
        ({"a": ["ü"]}, '{"a":["ü"]}'),
    ],
)
def test_a_text_reaches_the_agent_as_it_is_and_everything_else_as_json(result: Any, text: str) -> None:
    """B62."""
    reply = plugin_tools.succeeded(result)

    assert (reply["text"], reply["is_error"]) == (text, False)
    assert reply.get("structured_content") == (result if isinstance(result, dict) else None)


def test_a_large_object_is_sent_once_as_text() -> None:
    assert "structured_content" not in plugin_tools.succeeded({"a": "x" * 300_000})


def test_a_result_that_cannot_be_written_is_a_readable_error() -> None:
    reply = plugin_tools.succeeded(json.loads("[" * 400 + "]" * 400))

    assert reply["is_error"] is True
    assert reply["text"].startswith("error: internal: the result cannot be written as JSON")


def test_a_failure_reads_with_its_code() -> None:
    assert plugin_tools.failed(Refused(Code.TIMEOUT, "no result in time")) == {
        "text": "error: timeout: no result in time",
        "is_error": True,
    }
