"""Our daemon's workspace stream against section 4 of the wire page: its fields and no others."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.daemon import Daemon, Instance, git, repository
from tests.support.process import Process
from tests.support.shapes import ANY, NANO, SHA, Either, Map, check
from tests.wire.test_daemon_http import FILE_INFO, NAMES

TYPES: dict[str, Any] = {
    "connected": {},
    "pong": {},
    "shell_output": {"data": str},
    "shell_exit": {"code?": int},
    "error": {"error": str},
    "git_status": {
        "git_status": {
            "timestamp": NANO,
            "repository_name?": str,
            "is_submodule?": bool,
            "modified": NAMES,
            "added": NAMES,
            "deleted": NAMES,
            "untracked": NAMES,
            "renamed": NAMES,
            "ahead": int,
            "behind": int,
            "branch": str,
            "remote_branch?": str,
            "remote_ahead": int,
            "remote_behind": int,
            "remote_head_commit?": str,
            "head_commit?": str,
            "base_commit?": str,
            "comparison_target?": ANY,
            "comparison_status?": Either("ready", "unavailable"),
            "comparison_error_code?": str,
            "files?": Map(FILE_INFO),
            "branch_additions?": int,
            "branch_deletions?": int,
        }
    },
    "git_commit": {
        "git_commit": {
            "timestamp": NANO,
            "repository_name?": str,
            "commit_sha": SHA,
            "parent_sha": str,
            "message": str,
            "author_name": str,
            "author_email": str,
            "files_changed": int,
            "insertions": int,
            "deletions": int,
            "committed_at": NANO,
        }
    },
    "git_reset": {
        "git_reset": {"timestamp": NANO, "repository_name?": str, "previous_head": SHA, "current_head": SHA}
    },
    "branch_switch": {
        "branch_switch": {
            "timestamp": NANO,
            "repository_name?": str,
            "previous_branch": str,
            "current_branch": str,
            "current_head": SHA,
            "base_commit": SHA,
        }
    },
    "file_change": {
        "file_change": {
            "timestamp": NANO,
            "repository_name?": str,
            "path": str,
            "operation": Either("create", "write", "remove", "rename", "refresh"),
        }
    },
    "process_output": {
        "process_output": {
            "session_id": str,
            "process_id": str,
            "kind": str,
            "stream": Either("stdout", "stderr"),
            "data": str,
            "timestamp": NANO,
        }
    },
    "process_status": {
        "process_status": {
            "session_id": str,
            "process_id": str,
            "kind": str,
            "script_name?": str,
            "command": str,
            "working_dir": str,
            "status": Either("starting", "running", "exited", "failed"),
            "exit_code?": int,
            "timestamp": NANO,
        }
    },
}


pytestmark = pytest.mark.timeout(20)  # the first test of a module waits for the daemon, too


@pytest.fixture
async def work(tmp_path: Path) -> Path:
    return await repository(tmp_path / "work")


@pytest.fixture
async def instance(started: tuple[Process, str], work: Path) -> AsyncIterator[Instance]:
    async with Daemon(*started) as running, running.instance(work) as it:
        yield it


async def test_every_kind_of_frame_is_as_the_page_says(instance: Instance, work: Path) -> None:
    """B28: code 0 of a shell is absent, code 0 of a process is there."""
    async with instance.stream() as stream:
        await stream.until("git_status")
        # The client frames are those of section 6.5.
        await stream.socket.send('{"type":"ping","timestamp":1933135635003}')
        await stream.until("pong")
        await instance.post("/api/v1/shell/start")
        await stream.socket.send('{"type":"shell_resize","timestamp":1933135635002,"cols":120,"rows":40}')
        await stream.socket.send('{"type":"shell_input","timestamp":1933135635001,"data":"exit\\r"}')
        shell_exit = await stream.until("shell_exit")
        (work / "a.txt").write_text("two\n")
        await stream.until("file_change")
        await instance.git("commit", message="second", stage_all=True)
        await stream.until("git_commit")
        first = await git(work, "rev-parse", "HEAD~1")
        await instance.git("reset", commit_sha=first, mode="hard")
        await stream.until("git_reset")
        await git(work, "switch", "-q", "-c", "feat/x")
        await stream.until("branch_switch")
        body = {"session_id": "sess-41", "kind": "dev", "script_name": "web", "command": "echo ready"}
        await instance.post("/api/v1/processes/start", body)
        ended = await stream.until(lambda frame: frame.get("process_status", {}).get("status") == "exited")

    for frame in stream.frames:
        check(frame, {"type": frame["type"], "timestamp": int, **TYPES[frame["type"]]})
    seen = {frame["type"] for frame in stream.frames} | {"shell_output", "error"}
    assert seen == set(TYPES)
    assert stream.frames[0]["type"] == "connected"
    assert stream.text
    assert "code" not in shell_exit
    assert ended["process_status"]["exit_code"] == 0


async def test_a_shells_output_is_one_flat_text_frame(instance: Instance) -> None:
    await instance.post("/api/v1/shell/start")
    async with instance.stream() as stream:
        await stream.type("echo x\r")
        while True:
            raw = await stream.socket.recv()
            assert isinstance(raw, str)
            frame = orjson.loads(raw)
            if frame["type"] == "shell_output":
                break

    check(frame, {"type": "shell_output", "timestamp": int, "data": str})
    assert frame["timestamp"] > 1_700_000_000_000


async def test_the_dead_end_of_the_field_is_none_here(instance: Instance) -> None:
    """A frame that is no JSON makes the daemon in the field deaf; ours answers the next ping."""
    async with instance.stream() as stream:
        await stream.socket.send("not json")
        await stream.socket.send('{"type":"shell_resize","cols":"80","rows":null}')
        await stream.send("ping")

        await stream.until("pong")
