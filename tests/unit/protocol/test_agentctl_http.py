"""The HTTP of agentctl, as its page tells it."""

from __future__ import annotations

import pytest
from tieline_protocol import agentctl_http
from tieline_protocol.errors import BadMessage, Code


@pytest.mark.parametrize(
    ("action", "payload", "method", "path", "query", "body"),
    [
        ("workspace.file-tree", {"path": "a b", "depth": 2}, "GET", "workspace/tree",
         {"path": "a b", "depth": "2"}, None),
        ("workspace.file-content", {"path": "a"}, "GET", "workspace/file/content", {"path": "a"}, None),
        ("workspace.file-search", {"q": "ü", "limit": 5}, "GET", "workspace/search", {"q": "ü", "limit": "5"}, None),
        ("workspace.file-create", {"path": "a"}, "POST", "workspace/file/create", {}, {"path": "a"}),
        ("workspace.file-update", {"path": "a"}, "POST", "workspace/file/content", {}, {"path": "a"}),
        ("workspace.file-rename", {"old_path": "a"}, "POST", "workspace/file/rename", {}, {"old_path": "a"}),
        ("workspace.file-delete", {"path": "a", "repo": None}, "DELETE", "workspace/file", {"path": "a"}, None),
        ("git.status", {"fresh": True}, "GET", "git/status", {"fresh": "true"}, None),
        ("git.status-multi", {}, "GET", "git/status/multi", {}, None),
        ("git.show", {"sha": "a/b"}, "GET", "git/commit/a%2Fb", {}, None),
        ("git.commit", {"message": "m"}, "POST", "git/commit", {}, {"message": "m"}),
        ("git.contribution-replace", {}, "POST", "git/contribution/replace", {}, {}),
        ("process.start", {"command": "ls"}, "POST", "processes/start", {}, {"command": "ls"}),
        ("process.get", {"process_id": "p", "include_output": False}, "GET", "processes/p",
         {"include_output": "false"}, None),
        ("process.list", {}, "GET", "processes", {}, None),
        ("vscode.start", {}, "POST", "vscode/start", {}, {}),
        ("shell.status", {}, "GET", "shell/status", {}, None),
        ("configure", {"command": "x"}, "POST", "agent/configure", {}, {"command": "x"}),
    ],
)  # fmt: skip
def test_operations_in_the_spelling_of_the_field(
    action: str, payload: dict, method: str, path: str, query: dict, body: dict | None
):
    call = agentctl_http.call(action, payload, "field")

    assert (call.method, call.path, call.query, call.body) == (method, f"/api/v1/{path}", query, body)
    assert agentctl_http.is_call(action)
    assert call.safe == (method == "GET") == agentctl_http.is_safe(action)


@pytest.mark.parametrize(
    ("action", "payload", "method", "path", "body"),
    [
        ("workspace.file-tree", {"path": "a", "depth": 2}, "POST", "workspace/file-tree", {"path": "a", "depth": 2}),
        ("workspace.file-content", {"path": "a"}, "POST", "workspace/file-content", {"path": "a"}),
        ("workspace.file-search", {"q": "a"}, "POST", "workspace/file-search", {"q": "a"}),
        ("workspace.file-create", {"path": "a"}, "POST", "workspace/file-create", {"path": "a"}),
        ("workspace.file-delete", {"path": "a"}, "POST", "workspace/file-delete", {"path": "a"}),
        ("git.stage", {"paths": []}, "POST", "workspace/git/stage", {"paths": []}),
        ("git.status", {}, "POST", "workspace/git/status", {}),
        ("git.show", {"sha": "abc"}, "POST", "workspace/git/commit/abc", {}),
        ("process.start", {}, "POST", "process/start", {}),
        ("process.get", {"process_id": "p"}, "GET", "process/p", None),
        ("process.list", {}, "GET", "processes", None),
        ("vscode.stop", {}, "POST", "vscode/stop", {}),
        ("configure", {}, "POST", "configure", {}),
        ("status", {}, "GET", "status", None),
    ],
)  # fmt: skip
def test_operations_in_the_spelling_of_the_seed(
    action: str, payload: dict, method: str, path: str, body: dict | None
):
    call = agentctl_http.call(action, payload, "seed")

    assert (call.method, call.path, call.body) == (method, f"/api/v1/{path}", body)


def test_health_has_no_prefix_in_the_field():
    assert agentctl_http.health("field").path == "/health"
    assert agentctl_http.health("seed").path == "/api/v1/health"


@pytest.mark.parametrize("sha", [None, "", ".", "..", 5])
def test_a_path_needs_its_parameter(sha: object):
    with pytest.raises(BadMessage):
        agentctl_http.call("git.show", {"sha": sha}, "field")


def test_a_query_takes_plain_values_only():
    assert agentctl_http.call("git.log", {"limit": 1.5}, "field").query == {"limit": "1.5"}
    with pytest.raises(BadMessage):
        agentctl_http.call("git.log", {"limit": [1]}, "field")


def test_what_is_no_operation_is_none():
    assert not agentctl_http.is_call("agent.prompt")


def test_another_instance_at_the_port_is_told_from_a_missing_file():
    """A port that was given to another instance: its 404 is fatal, a file's is not."""
    assert agentctl_http.is_gone(404, {"error": "…", "recycled_port": True})
    assert not agentctl_http.is_gone(404, {"error": "process not found"})
    assert not agentctl_http.is_gone(404, None)
    assert not agentctl_http.is_gone(200, {"recycled_port": True})


def test_a_failure_in_an_orderly_way_is_no_refusal():
    assert agentctl_http.http_refused(409, {"success": False, "error": "in progress"}) is None


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, {"error": "no such thing"}, Code.BAD_REQUEST),
        (400, {"error": "file not found: a.txt"}, Code.NOT_FOUND),
        (400, {"error": "open /w/a.txt: no such file or directory"}, Code.NOT_FOUND),
        (400, {"error": "file too large (max 10MB)", "size": 5}, Code.TOO_LARGE),
        (400, {"success": True}, Code.BAD_REQUEST),
        (404, None, Code.NOT_FOUND),
        (409, {"error": "x"}, Code.CONFLICT),
        (413, {}, Code.TOO_LARGE),
        (422, {"error": 5}, Code.BAD_REQUEST),
        (500, [], Code.INTERNAL),
        (503, {"error": "shell not available"}, Code.UNAVAILABLE),
    ],
)
def test_http_answers_map_to_our_codes(status: int, body: object, code: Code):
    refused = agentctl_http.http_refused(status, body)

    assert refused is not None
    assert refused.code is code
    assert refused.message
    assert refused.details == {"status": status}
