from typing import Any

from tieline_agentctl.mcp_servers import given

BOTH = {"http": True, "sse": True}


def kinds(told: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(one["server_name"], one["transport"], one["kind"]) for one in told]


def test_our_own_server_comes_first_over_http():
    servers, told = given([], [], 41001, BOTH)

    assert servers == [{"type": "http", "name": "kandev", "url": "http://localhost:41001/mcp", "headers": []}]
    assert kinds(told) == [("kandev", "http", "delivered"), ("kandev", "sse", "filtered")]
    assert told[1]["reason_code"] == "duplicate_name"


def test_an_agent_that_only_knows_sse_gets_that():
    servers, told = given([], [], 41001, {"sse": True})

    assert servers[0]["url"] == "http://localhost:41001/sse"
    assert told[0]["reason_code"] == "transport_unsupported"


def test_an_agent_that_knows_neither_gets_only_servers_on_stdio():
    files = {"name": "files", "command": "mcp-files", "args": ["-r"], "env": {"A": "b"}}
    servers, _ = given([files], [], 41001, {})

    assert servers == [
        {"name": "files", "command": "mcp-files", "args": ["-r"], "env": [{"name": "A", "value": "b"}]}
    ]


def test_nobody_else_can_be_called_like_ours():
    servers, _ = given(
        [{"name": "kandev", "command": "evil"}], [{"name": "kandev", "command": "evil"}], 1, BOTH
    )

    assert [server.get("command") for server in servers] == [None]


def test_configured_servers_come_before_those_asked_for():
    configured = [{"name": "a", "url": "http://a", "type": "streamable_http", "headers": {"X": "y"}}]
    asked = [{"name": "a", "command": "x"}, {"name": "b", "url": "http://b"}]

    servers, told = given(asked, configured, 1, BOTH)

    assert [(server["name"], server.get("type")) for server in servers[1:]] == [("a", "http"), ("b", "http")]
    assert servers[1]["headers"] == [{"name": "X", "value": "y"}]
    assert ("a", "stdio", "filtered") in kinds(told)
    assert told[-1]["source"] == "profile"
