"""Our daemon's HTTP against the wire page: every answer has the fields of the page and no others.

The shapes are written from sections 1 and 2 of the page, not from our code.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon, Instance, git, repository
from tests.support.eventually import eventually
from tests.support.process import Process
from tests.support.shapes import ANY, NANO, SECONDS, SHA, THREE, Either, Map, check

HEALTH = {"status": "ok", "timestamp": SECONDS}
INSTANCE = {
    "id": str,
    "port": int,
    "status": Either("running", "stopping"),
    "workspace_path": str,
    "agent_command": str,
    "env?": Map(str),
    "created_at": NANO,
}
STATUS = {
    "agent_status": Either("stopped", "starting", "running", "paused", "stopping", "error"),
    "process_info": {"status": str, "exit_code": int, "pid?": int, "exit_error?": str},
    "uptime?": ANY,
    # ours tells these two, too
    "busy": bool,
    "prompt_generation": int,
}
FILE_INFO = {
    "path": str,
    "status": Either("modified", "added", "deleted", "untracked", "renamed"),
    "staged": bool,
    "additions?": int,
    "deletions?": int,
    "old_path?": str,
    "diff?": str,
    "diff_skip_reason?": Either("too_large", "binary", "truncated", "budget_exceeded"),
}
GIT_RESULT = {
    "success": bool,
    "operation": str,
    "output": str,
    "error?": str,
    "error_code?": str,
    "conflict_files?": [str],
    "recovery_branch?": str,
}
NAMES = Either([str], None)
GIT_STATUS = {
    "success": bool,
    "repository_name?": str,
    "is_submodule?": bool,
    "branch": str,
    "remote_branch": str,
    "head_commit": str,
    "base_commit": str,
    "comparison_target?": ANY,
    "comparison_status?": str,
    "comparison_error_code?": str,
    "ahead": int,
    "behind": int,
    "remote_ahead": int,
    "remote_behind": int,
    "remote_head_commit?": str,
    "modified": NAMES,
    "added": NAMES,
    "deleted": NAMES,
    "untracked": NAMES,
    "renamed": NAMES,
    "files": Either(Map(FILE_INFO), None),
    "timestamp": Either(THREE, ""),
    "branch_additions?": int,
    "branch_deletions?": int,
    "error?": str,
}
COMMIT = {
    "commit_sha": SHA,
    "parent_sha": Either(SHA, ""),
    "commit_message": str,
    "author_name": str,
    "author_email": str,
    "committed_at": NANO,
    "files_changed": int,
    "insertions": int,
    "deletions": int,
    "pushed": bool,
    "repository_name?": str,
}
PROCESS = {
    "id": str,
    "session_id": str,
    "kind": str,
    "script_name?": str,
    "command": str,
    "working_dir": str,
    "status": Either("starting", "running", "exited", "failed", "stopped"),
    "exit_code?": int,
    "started_at": NANO,
    "updated_at": NANO,
    "output?": [{"stream": Either("stdout", "stderr"), "data": str, "timestamp": NANO}],
}
NODE: dict[str, Any] = {"name": str, "path": str, "is_dir": bool, "size?": int, "is_symlink?": True}
NODE["children?"] = [NODE]
CONTENT = {
    "request_id": "",
    "path": str,
    "content": str,
    "size": int,
    "is_binary?": True,
    "resolved_path?": str,
    "error?": str,
}


pytestmark = pytest.mark.timeout(20)  # the first test of a module waits for the daemon, too


@pytest.fixture
async def running(started: tuple[Process, str]) -> AsyncIterator[Daemon]:
    async with Daemon(*started) as it:
        yield it


@pytest.fixture
async def work(tmp_path: Path) -> Path:
    return await repository(tmp_path / "work", {"a.txt": "one\n", "src/b.py": "x\n"})


@pytest.fixture
async def instance(running: Daemon, work: Path) -> AsyncIterator[Instance]:
    async with running.instance(work, session_id="sess-41", task_id="task-7", env={"A": "1"}) as it:
        yield it


async def test_the_control_server(running: Daemon, instance: Instance) -> None:
    check((await running.http.get("/health")).json(), HEALTH)
    check((await running.http.get("/api/v1/instances")).json(), [INSTANCE])
    check((await running.http.get(f"/api/v1/instances/{instance.id}")).json(), INSTANCE)
    admission = (await running.http.get("/api/v1/debug/subprocess-admission")).json()
    check(admission, {"pool": str, "capacity": int, "inflight": int, "waiters": int, "classes": Map(ANY)})


async def test_a_create_request_of_the_real_backend_is_taken(running: Daemon, work: Path) -> None:
    """The example of section 6.1 with every field of section 1.6."""
    body = {
        "id": "exec-41",
        "workspace_path": str(work),
        "agent_command": "/opt/mock-agent --model mock-fast",
        "protocol": "acp",
        "agent_type": "mock-agent",
        "session_id": "sess-41",
        "task_id": "task-7",
        "env": {"KANDEV_TASK_ID": "task-7", "KANDEV_SESSION_ID": "sess-41"},
        "auto_start": False,
        "auto_approve_permissions": None,
        "mcp_servers": [{"name": "m", "command": "no-such-command", "args": ["x"]}],
        "disable_ask_question": False,
        "assume_mcp_sse": True,
        "mcp_mode": "task",
        "mcp_providers": ["github"],
        "mcp_profile": {"surface": "kanban-task", "capabilities": ["user-question"]},
        "requires_process_kill": True,
        "strip_env": None,
        "base_branches": {"": "main"},
        "comparison_targets": None,
        "workspace_source_roots": [],
    }
    answer = await running.http.post("/api/v1/instances", json=body)

    assert answer.status_code == 201
    check(answer.json(), {"id": "exec-41", "port": int})
    gone = await running.http.delete("/api/v1/instances/exec-41")
    check(gone.json(), {"message": "instance stopped successfully"})


async def test_health_status_info_and_metrics(instance: Instance) -> None:
    check((await instance.get("/health")).json(), HEALTH)
    check((await instance.get("/api/v1/status")).json(), STATUS)
    info = {"version": "0.1.0", "agent_command": str, "work_dir": str, "port": instance.port}
    check((await instance.get("/api/v1/info")).json(), info)
    metric = {"id": str, "label": str, "unit?": str, "value?": float, "available": bool, "error?": str}
    metrics = (await instance.get("/api/v1/system/metrics", metrics="cpu,memory,nope")).json()
    check(
        metrics,
        {
            "id": "agentctl",
            "label": "Execution",
            "kind": "execution",
            "executor_type?": str,
            "session_id?": "sess-41",
            "task_id?": "task-7",
            "metrics": [metric],
        },
    )
    assert [one["id"] for one in metrics["metrics"]] == ["cpu", "memory", "nope"]


async def test_the_agents_life_cycle(instance: Instance) -> None:
    refused = {"success": False, "error": str}
    check(
        (await instance.post("/api/v1/agent/configure", {})).json(),
        {**refused, "error": "command is required"},
    )
    check(
        (await instance.post("/api/v1/agent/configure", {"command": "x", "agent_args": []})).json(), refused
    )
    done = await instance.post(
        "/api/v1/agent/configure", {"command": "no-such-agent", "approval_policy": "never"}
    )
    check(done.json(), {"success": True, "message": "agent configured"})
    check((await instance.post("/api/v1/start")).json(), refused)
    stopped = await instance.http.post("/api/v1/stop")
    check(stopped.json(), {"success": True, "message": "agent stopped"})


async def test_pushes_of_workspace_state(instance: Instance, work: Path) -> None:
    base = "/api/v1/workspace"
    check((await instance.post(f"{base}/poll-mode", {"mode": "slow"})).json(), {"mode": "slow"})
    check((await instance.http.post(f"{base}/rescan")).json(), {"ok": True})
    check((await instance.http.post(f"{base}/reconcile")).json(), {"ok": True})
    check((await instance.post(f"{base}/rebind", {"work_dir": str(work)})).json(), {"ok": True})
    check(
        (await instance.post(f"{base}/base-branches", {"base_branches": {"": "main"}})).json(), {"ok": True}
    )
    check(
        (await instance.post(f"{base}/comparison-targets", {"comparison_targets": {}})).json(), {"ok": True}
    )
    for path in ("poll-mode", "rebind", "base-branches"):
        empty = await instance.http.post(f"{base}/{path}")
        assert empty.status_code == 400
        assert "EOF" in empty.json()["error"]


async def test_files(instance: Instance) -> None:
    base = "/api/v1/workspace"
    tree = {"request_id": "", "root": Either(NODE, None), "error?": str}
    check((await instance.get(f"{base}/tree", depth=0)).json(), tree)
    check((await instance.get(f"{base}/tree", path="nope")).json(), {**tree, "root": None, "error": str})
    check((await instance.get(f"{base}/file/content", path="a.txt")).json(), CONTENT)
    check((await instance.get(f"{base}/file/content", path="nope")).json(), {**CONTENT, "error": str})
    check((await instance.get(f"{base}/file/content-at-ref", path="a.txt", ref="HEAD")).json(), CONTENT)
    written = {
        "request_id": "",
        "path": "a.txt",
        "success": bool,
        "new_hash?": str,
        "resolution?": Either("applied", "overwritten"),
        "error?": str,
    }
    diff = "@@ -1 +1 @@\n-one\n+two\n"
    for body in ({"diff": diff, "original_hash": ""}, {"diff": diff, "original_hash": "0"}, {"diff": diff}):
        check((await instance.post(f"{base}/file/content", {"path": "a.txt", **body})).json(), written)
    made = {"path": "n.txt", "success": bool, "error?": str}
    for _ in range(2):
        check((await instance.post(f"{base}/file/create", {"path": "n.txt"})).json(), made)
    names = {"old_path": "n.txt", "new_path": "m.txt"}
    for _ in range(2):
        moved = await instance.post(f"{base}/file/rename", names)
        check(moved.json(), {**names, "success": bool, "error?": str})
    for _ in range(2):
        gone = await instance.delete(f"{base}/file", path="m.txt")
        check(gone.json(), {"request_id": "", "path": "m.txt", "success": bool, "error?": str})
    found = {"files": [str], "results": [{"repository_name?": str, "path": str}], "error?": str}
    for query in ("", "a"):
        check((await instance.get(f"{base}/search", q=query)).json(), found)
    line = {
        "repository_name": str,
        "path": str,
        "line": int,
        "column": int,
        "preview": str,
        "match_ranges": [{"start": int, "end": int}],
    }
    check((await instance.get(f"{base}/content-search", q="x")).json(), {"results": [line], "error?": str})


async def test_git(instance: Instance, work: Path) -> None:
    base = "/api/v1/git"
    (work / "a.txt").write_text("two\n")
    for path, body in (
        ("stage", {}),
        ("unstage", {"paths": ["a.txt"]}),
        ("commit", {"message": "second", "stage_all": True, "amend": False}),
        ("commit", {"message": "nothing"}),
        ("push", {"force": False, "set_upstream": False}),
        ("pull", {"rebase": True}),
        ("merge", {"base_branch": "nope"}),
        ("rebase", {"base_branch": "main"}),
        ("abort", {"operation": "merge"}),
        ("rename-branch", {"new_name": "feat"}),
        ("reset", {"commit_sha": "HEAD"}),
        ("discard", {"paths": ["a.txt"]}),
        ("revert-commit", {"commit_sha": "0" * 40}),
    ):
        answer = await instance.post(f"{base}/{path}", body)
        assert answer.status_code == 200, answer.text
        check(answer.json(), {**GIT_RESULT, "operation": path.replace("-", "_")})
    check((await instance.get(f"{base}/status", fresh="true")).json(), GIT_STATUS)
    multi = {"success": True, "repos": [{"repository_name": "", "status": GIT_STATUS}], "error?": str}
    check((await instance.get(f"{base}/status/multi")).json(), multi)
    log = {"success": bool, "commits": Either([COMMIT], None), "error?": str, "per_repo_errors?": ANY}
    check((await instance.get(f"{base}/log")).json(), log)
    check((await instance.get(f"{base}/log", limit=999)).json(), {**log, "commits": None})
    head = await git(work, "rev-parse", "HEAD")
    shown = {
        "success": bool,
        "commit_sha": SHA,
        "message": "second",
        "author": "Test <test@example.org>",
        "date": NANO,
        "files": Either(Map(FILE_INFO), None),
        "files_changed": int,
        "insertions": int,
        "deletions": int,
        "error?": str,
    }
    check((await instance.get(f"{base}/commit/{head}")).json(), shown)
    cumulative = {
        "success": bool,
        "base_commit": SHA,
        "head_commit": SHA,
        "total_commits": int,
        "files": Map(FILE_INFO),
        "truncated_files_count?": int,
    }
    check((await instance.get(f"{base}/cumulative-diff", base="HEAD~1")).json(), cumulative)


async def test_a_status_that_cannot_be_made(running: Daemon, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    async with running.instance(tmp_path / "plain") as instance:
        answer = await instance.get("/api/v1/git/status")

    assert answer.status_code == 500
    nothing = dict.fromkeys(("modified", "added", "deleted", "untracked", "renamed", "files"))
    check(answer.json(), {**GIT_STATUS, **nothing, "success": False, "timestamp": "", "error": str})


async def test_vscode(instance: Instance) -> None:
    base = "/api/v1/vscode"
    status = {"status": str, "port?": int, "url?": str, "error?": str, "message?": str}
    check((await instance.get(f"{base}/status")).json(), {**status, "status": "stopped"})
    assert (await instance.http.post(f"{base}/start")).status_code == 400
    assert (await instance.get(f"{base}/proxy/x")).status_code == 503
    check((await instance.http.post(f"{base}/stop")).json(), {"success": True})


async def test_processes(instance: Instance) -> None:
    base = "/api/v1/processes"
    check((await instance.get(base)).json(), [])
    body = {"session_id": "sess-41", "kind": "dev", "script_name": "web", "command": "echo hi; sleep 1000"}
    begun = (await instance.post(f"{base}/start", {**body, "working_dir": "/"})).json()
    check(begun, {"process": {**PROCESS, **body, "working_dir": "/"}})
    route = f"{base}/{begun['process']['id']}"

    async def output() -> Any:
        return (await instance.get(route, include_output="true")).json()["output"]

    await eventually(output)
    check(
        (await instance.get(route, include_output="true")).json(), {**PROCESS, "output": PROCESS["output?"]}
    )
    check((await instance.get(base)).json(), [PROCESS])
    check(
        (await instance.post(f"{base}/stop", {"process_id": begun["process"]["id"]})).json(),
        {"success": True},
    )
    missing = await instance.get(f"{base}/nobody")
    assert (missing.status_code, missing.json()) == (404, {"error": "process not found"})


async def test_the_shell(instance: Instance) -> None:
    base = "/api/v1/shell"
    status = {
        "available": bool,
        "running": bool,
        "pid?": int,
        "shell?": str,
        "cwd?": str,
        "started_at?": NANO,
        "error?": str,
    }
    check((await instance.get(f"{base}/status")).json(), status)
    check((await instance.get(f"{base}/buffer")).json(), {"error": "shell not available"})
    check((await instance.http.post(f"{base}/start")).json(), {"status": "shell started"})
    check((await instance.get(f"{base}/status")).json(), {**status, "available": True})
    check((await instance.get(f"{base}/buffer")).json(), {"data": str})
