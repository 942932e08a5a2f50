from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_agentctl.normalized import normalized


def content(text: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": text}}


def diff(old: str | None, new: str) -> dict[str, Any]:
    return {"type": "diff", "path": "/w/a.py", "oldText": old, "newText": new}


TOOLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a read": (
        {
            "kind": "read",
            "rawInput": {"path": "app.py", "offset": 3, "limit": 9},
            "content": [content("x=1\ny=2")],
        },
        {
            "kind": "read_file",
            "read_file": {
                "file_path": "app.py",
                "offset": 3,
                "limit": 9,
                "output": {"content": "x=1\ny=2", "line_count": 2},
            },
        },
    ),
    "a read whose path is only a location": (
        {"kind": "read", "locations": [{"path": "/w/app.py"}]},
        {"kind": "read_file", "read_file": {"file_path": "/w/app.py"}},
    ),
    "a read of nothing known": (
        {"kind": "read", "locations": [7], "rawInput": {"offset": True}},
        {"kind": "read_file", "read_file": {"file_path": ""}},
    ),
    "an edit": (
        {"kind": "edit", "content": [diff("a", "b"), {"type": "content"}]},
        {
            "kind": "modify_file",
            "modify_file": {
                "file_path": "/w/a.py",
                "mutations": [{"type": "replace", "old_content": "a", "new_content": "b"}],
            },
        },
    ),
    "a new file": (
        {"kind": "edit", "rawInput": {"path": "a.py"}, "content": [diff(None, "b")]},
        {
            "kind": "modify_file",
            "modify_file": {"file_path": "a.py", "mutations": [{"type": "create", "content": "b"}]},
        },
    ),
    "an edit that only says what it will write": (
        {"kind": "edit", "rawInput": {"path": "a.py", "content": "b"}},
        {
            "kind": "modify_file",
            "modify_file": {"file_path": "a.py", "mutations": [{"type": "create", "content": "b"}]},
        },
    ),
    "an edit of which nothing is known yet": (
        {"kind": "edit"},
        {"kind": "modify_file", "modify_file": {"file_path": "", "mutations": None}},
    ),
    "a deletion": (
        {"kind": "delete", "rawInput": {"file_path": "a"}},
        {"kind": "modify_file", "modify_file": {"file_path": "a", "mutations": [{"type": "delete"}]}},
    ),
    "a move": (
        {"kind": "move", "rawInput": {"path": "a", "new_path": "b"}},
        {
            "kind": "modify_file",
            "modify_file": {"file_path": "a", "mutations": [{"type": "rename", "new_path": "b"}]},
        },
    ),
    "a command that ended well": (
        {
            "kind": "execute",
            "rawInput": {"command": "ls", "cwd": "/w", "timeout": 5, "run_in_background": True},
            "rawOutput": {"exit_code": 0, "stdout": "a\n", "stderr": "e"},
        },
        {
            "kind": "shell_exec",
            "shell_exec": {
                "command": "ls",
                "work_dir": "/w",
                "timeout": 5,
                "background": True,
                "output": {"stdout": "a\n", "stderr": "e", "exit_code": 0},
            },
        },
    ),
    "a command given as a list, its output as content": (
        {"kind": "execute", "rawInput": {"cmd": ["git", "status"]}, "content": [content("clean")]},
        {"kind": "shell_exec", "shell_exec": {"command": "git status", "output": {"stdout": "clean"}}},
    ),
    "a command that only the title tells": (
        {"kind": "execute", "title": "make", "rawOutput": {"exitCode": 2}},
        {"kind": "shell_exec", "shell_exec": {"command": "make", "output": {"exit_code": 2}}},
    ),
    "a command that runs": (
        {"kind": "execute", "title": "make"},
        {"kind": "shell_exec", "shell_exec": {"command": "make"}},
    ),
    "a search": (
        {
            "kind": "search",
            "rawInput": {"pattern": "x", "path": "src", "glob": "*.py"},
            "content": [content("a\n\nb")],
        },
        {
            "kind": "code_search",
            "code_search": {
                "pattern": "x",
                "path": "src",
                "glob": "*.py",
                "output": {"files": ["a", "b"], "file_count": 2},
            },
        },
    ),
    "a search that runs": (
        {"kind": "search", "rawInput": {"query": "x"}},
        {"kind": "code_search", "code_search": {"query": "x"}},
    ),
    "a fetch": (
        {"kind": "fetch", "rawInput": {"url": "http://x"}, "content": [content("page")]},
        {"kind": "generic", "generic": {"name": "fetch", "input": {"url": "http://x"}, "output": "page"}},
    ),
    "an unknown kind": (
        {"kind": "other", "title": "mcp__a__b", "rawOutput": [1], "content": "no list"},
        {"kind": "generic", "generic": {"name": "mcp__a__b", "output": [1]}},
    ),
    "a tool without anything": ({}, {"kind": "generic", "generic": {}}),
    "a subagent": (
        {"kind": "think", "rawInput": {"subagent_type": "explore", "prompt": "look", "description": "find"}},
        {
            "kind": "subagent_task",
            "subagent_task": {"description": "find", "prompt": "look", "subagent_type": "explore"},
        },
    ),
    "a list of things to do": (
        {
            "rawInput": {
                "todos": [{"content": "a", "status": "pending", "activeForm": "doing a", "id": "1"}, 7]
            }
        },
        {
            "kind": "manage_todos",
            "manage_todos": {
                "operation": "update",
                "items": [{"description": "a", "id": "1", "status": "pending", "active_form": "doing a"}],
            },
        },
    ),
}


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_call_is_shown_as_what_it_does(name: str):
    tool, shown = TOOLS[name]

    assert normalized(tool) == shown


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(
    [
        "kind",
        "title",
        "rawInput",
        "rawOutput",
        "content",
        "locations",
        "status",
        "path",
        "command",
        "todos",
        "text",
    ]
)
kinds = st.sampled_from(["read", "edit", "delete", "move", "execute", "search", "fetch", "think", "other"])


@given(kinds, st.dictionaries(keys, anything | st.dictionaries(keys, anything)))
def test_no_tool_call_is_too_odd(kind: str, tool: dict[str, Any]):
    shown = normalized({**tool, "kind": kind})

    assert shown[shown["kind"]] is not None
    assert len(shown) == 2
