"""The git routes of a real daemon, on the real git: what works, what git refuses, and one operation at a time."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon, Instance, git, repository
from tests.support.eventually import eventually
from tests.support.process import Process

ODD = ["b ü.txt", "new\nline", "-lead", 'a -> "x".txt', ":(glob)*", "e\u0301.txt", "é.txt"]


pytestmark = pytest.mark.timeout(20)  # the first test of a module waits for the daemon, too


@pytest.fixture
async def work(tmp_path: Path) -> Path:
    return await repository(tmp_path / "work", {"a.txt": "one\n", "b.txt": "b\n"})


@pytest.fixture
async def instance(started: tuple[Process, str], work: Path) -> AsyncIterator[Instance]:
    async with Daemon(*started) as running, running.instance(work) as it:
        yield it


async def _status(instance: Instance) -> Any:
    return (await instance.get("/api/v1/git/status", fresh="true")).json()


async def test_a_status_is_told(instance: Instance, work: Path) -> None:
    (work / "a.txt").write_text("one\ntwo\n")
    (work / "n.txt").write_text("x\n")
    await git(work, "rm", "-q", "b.txt")

    status = await _status(instance)

    assert status["success"] is True
    assert (status["modified"], status["deleted"], status["untracked"]) == (["a.txt"], ["b.txt"], ["n.txt"])
    assert (status["added"], status["renamed"], status["branch"]) == ([], [], "main")
    assert (status["ahead"], status["behind"], status["remote_branch"]) == (0, 0, "")
    changed = status["files"]["a.txt"]
    assert changed == {
        "path": "a.txt",
        "status": "modified",
        "staged": False,
        "additions": 1,
        "diff": "@@ -1 +1,2 @@\n one\n+two\n",
    }


async def test_odd_names_are_staged_unstaged_and_discarded(instance: Instance, work: Path) -> None:
    """B85: no name is an option, a pattern or two names."""
    for name in ODD:
        (work / name).write_text("x\n")
    (work / "other.txt").write_text("")

    assert (await instance.git("stage", paths=ODD))["success"] is True
    status = await _status(instance)
    assert (set(status["added"]), status["untracked"]) == (set(ODD), ["other.txt"])

    assert (await instance.git("unstage", paths=ODD[:3]))["success"] is True
    assert set((await _status(instance))["untracked"]) == {*ODD[:3], "other.txt"}

    assert (await instance.git("discard", paths=ODD))["success"] is True
    status = await _status(instance)
    assert (status["added"], status["untracked"]) == ([], ["other.txt"])
    assert [name for name in ODD if (work / name).exists()] == []


async def test_empty_paths_mean_all(instance: Instance, work: Path) -> None:
    (work / "n.txt").write_text("")
    (work / "b.txt").unlink()

    await instance.git("stage")
    assert (await _status(instance))["added"] == ["n.txt"]
    await instance.git("unstage", paths=[])

    status = await _status(instance)
    assert (status["untracked"], status["deleted"], status["files"]["b.txt"]["staged"]) == (
        ["n.txt"],
        ["b.txt"],
        False,
    )


async def test_discarding_brings_back_the_last_commit(instance: Instance, work: Path) -> None:
    (work / "a.txt").write_text("changed\n")
    await git(work, "mv", "b.txt", "c.txt")
    (work / "dir").mkdir()
    (work / "dir" / "n.txt").write_text("")

    done = await instance.git("discard", paths=["a.txt", "c.txt", "dir"])

    assert done == {"success": True, "operation": "discard", "output": ""}
    assert sorted(path.name for path in work.iterdir()) in (
        [".git", "a.txt", "b.txt"],
        [".git", "a.txt", "b.txt", "dir"],
    )
    assert await git(work, "status", "--porcelain") == ""


async def test_unstaging_a_rename_unstages_both_names(instance: Instance, work: Path) -> None:
    await git(work, "mv", "b.txt", "c.txt")

    await instance.git("unstage", paths=["c.txt"])

    status = await _status(instance)
    assert (status["untracked"], status["deleted"]) == (["c.txt"], ["b.txt"])
    assert not any(file["staged"] for file in status["files"].values())


async def test_git_works_before_the_first_commit(started: tuple[Process, str], tmp_path: Path) -> None:
    await git(tmp_path, "init", "-q")
    (tmp_path / "n.txt").write_text("x\n")
    async with Daemon(*started) as running, running.instance(tmp_path) as instance:
        await instance.git("stage", paths=["n.txt"])
        assert (await _status(instance))["files"]["n.txt"]["additions"] == 1
        await instance.git("unstage", paths=["n.txt"])
        assert (await _status(instance))["untracked"] == ["n.txt"]
        assert (await instance.get("/api/v1/git/log")).json() == {"success": True, "commits": []}
        assert (await instance.git("commit", message="first", stage_all=True))["success"] is True
        assert len((await instance.get("/api/v1/git/log")).json()["commits"]) == 1


async def test_nothing_to_commit_is_a_result_not_an_error(instance: Instance) -> None:
    done = await instance.git("commit", message="nothing")

    assert (done["success"], done["operation"]) == (False, "commit")
    assert done["error"]
    assert "nothing to commit" in done["output"]


async def test_a_commit_is_amended(instance: Instance, work: Path) -> None:
    (work / "a.txt").write_text("two\n")
    async with instance.stream() as stream:
        await stream.until("git_status")
        old = await git(work, "rev-parse", "HEAD")
        done = await instance.git("commit", message="better", stage_all=True, amend=True)
        assert done["success"] is True
        reset = (await stream.until("git_reset"))["git_reset"]
        commit = (await stream.until("git_commit"))["git_commit"]

    assert (reset["previous_head"], reset["current_head"]) == (old, commit["commit_sha"])
    assert await git(work, "log", "--format=%s") == "better"


async def test_a_conflict_is_left_in_place_listed_and_aborted(instance: Instance, work: Path) -> None:
    await _diverge(work)

    done = await instance.git("merge", base_branch="other")

    assert (done["success"], done["error"], done["conflict_files"]) == (False, "merge conflict", ["a.txt"])
    assert "<<<<<<<" in (work / "a.txt").read_text()
    assert (await _status(instance))["modified"] == ["a.txt"]
    assert (await instance.git("abort", operation="merge"))["success"] is True
    assert (work / "a.txt").read_text() == "main\n"


async def test_a_rebase_that_conflicts_undoes_itself(instance: Instance, work: Path) -> None:
    head = await _diverge(work)

    done = await instance.git("rebase", base_branch="other")

    assert (done["success"], done["conflict_files"]) == (False, ["a.txt"])
    assert await git(work, "rev-parse", "HEAD") == head
    assert not (work / ".git" / "rebase-merge").exists()


async def test_a_merge_and_a_rebase_that_fit_are_done(instance: Instance, work: Path) -> None:
    await git(work, "switch", "-q", "-c", "other")
    (work / "c.txt").write_text("")
    await git(work, "add", "-A")
    await git(work, "commit", "-q", "-m", "c")
    await git(work, "switch", "-q", "main")

    assert (await instance.git("merge", base_branch="other"))["success"] is True
    assert (work / "c.txt").exists()
    assert (await instance.git("rebase", base_branch="other"))["success"] is True


async def test_only_the_newest_commit_is_reverted(instance: Instance, work: Path) -> None:
    first = await git(work, "rev-parse", "HEAD")
    (work / "a.txt").write_text("two\n")
    await git(work, "commit", "-q", "-a", "-m", "second")
    second = await git(work, "rev-parse", "HEAD")

    assert (await instance.git("revert-commit", commit_sha=first))["success"] is False
    assert (await instance.git("revert-commit", commit_sha=second))["success"] is True

    assert await git(work, "rev-parse", "HEAD") == first
    assert (work / "a.txt").read_text() == "two\n"
    assert (await instance.git("revert-commit", commit_sha=first))["success"] is False


async def test_a_branch_is_renamed_but_not_to_nonsense(instance: Instance, work: Path) -> None:
    assert (await instance.git("rename-branch", new_name="feat/x"))["success"] is True
    assert await git(work, "branch", "--show-current") == "feat/x"

    for name in ("--help", "a b", "a..b", "a/", "x.lock"):
        answer = await instance.post("/api/v1/git/rename-branch", {"new_name": name})
        assert (answer.status_code, answer.json()["success"], answer.json()["operation"]) == (
            500,
            False,
            "rename_branch",
        )


async def test_push_and_pull_with_a_remote(instance: Instance, work: Path, tmp_path: Path) -> None:
    await git(tmp_path, "init", "-q", "--bare", "remote.git")
    assert (await instance.git("push"))["success"] is False
    await git(work, "remote", "add", "origin", str(tmp_path / "remote.git"))

    assert (await instance.git("push", set_upstream=True))["success"] is True
    status = await _status(instance)
    assert (status["remote_branch"], status["remote_ahead"]) == ("origin/main", 0)

    other = tmp_path / "other"
    await git(tmp_path, "clone", "-q", str(tmp_path / "remote.git"), "other", "-b", "main")
    (other / "new.txt").write_text("")
    await git(other, "add", "-A")
    await git(other, "commit", "-q", "-m", "theirs")
    await git(other, "push", "-q")
    await git(work, "commit", "-q", "--allow-empty", "-m", "mine")
    rejected = await instance.git("push")
    assert rejected["success"] is False
    assert "rejected" in rejected["output"]

    assert (await instance.git("pull", rebase=True))["success"] is True
    assert (work / "new.txt").exists()
    assert (await instance.git("push"))["success"] is True
    commits = (await instance.get("/api/v1/git/log")).json()["commits"]
    assert all(commit["pushed"] for commit in commits)


async def test_a_second_operation_at_once_is_refused(instance: Instance, work: Path) -> None:
    hook = work / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\ntouch running\nwhile ! test -e go; do sleep 0.01; done\n")
    hook.chmod(0o755)
    first = asyncio.create_task(instance.git("commit", message="slow", stage_all=True))
    await eventually((work / "running").exists)

    second = await instance.post("/api/v1/git/stage", {})
    (work / "go").write_text("")

    assert second.status_code == 409
    assert second.json() == {
        "success": False,
        "operation": "stage",
        "output": "",
        "error": "another git operation is already in progress",
    }
    (work / "a.txt").write_text("x")
    await first
    assert (await instance.post("/api/v1/git/stage", {})).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("commit", {}),
        ("commit", {"message": ""}),
        ("commit", {"message": 5}),
        ("merge", {}),
        ("rebase", {"base_branch": ""}),
        ("abort", {"operation": "pull"}),
        ("discard", {"paths": []}),
        ("discard", {"paths": ["../x"]}),
        ("stage", {"paths": ["/etc/passwd"]}),
        ("stage", {"paths": ["a\0b"]}),
        ("stage", {"repo": "nope"}),
        ("reset", {"commit_sha": "--hard"}),
        ("reset", {"commit_sha": "HEAD", "mode": "keep"}),
        ("revert-commit", {}),
    ],
)
async def test_a_request_that_makes_no_sense_is_a_400_with_a_result(
    instance: Instance, path: str, body: dict[str, Any]
) -> None:
    answer = await instance.post(f"/api/v1/git/{path}", body)

    assert answer.status_code == 400
    assert answer.json()["success"] is False
    assert answer.json()["operation"] == path.replace("-", "_")
    assert answer.json()["error"]


async def test_the_seeds_spelling_is_the_same(instance: Instance, work: Path) -> None:
    (work / "a.txt").write_text("two\n")
    base = "/api/v1/workspace/git"

    staged = (await instance.post(f"{base}/stage", {"paths": ["a.txt"]})).json()
    committed = (await instance.post(f"{base}/commit", {"message": "second"})).json()

    assert (staged["operation"], staged["success"]) == ("stage", True)
    assert (committed["operation"], committed["success"]) == ("commit", True)
    head = await git(work, "rev-parse", "HEAD")
    for method in ("GET", "POST"):
        log = (await instance.http.request(method, f"{base}/log")).json()
        show = (await instance.http.request(method, f"{base}/commit/{head}")).json()
        status = (await instance.http.request(method, f"{base}/status")).json()
        assert log["commits"][0]["commit_sha"] == show["commit_sha"] == status["head_commit"] == head


async def test_a_commit_is_shown(instance: Instance, work: Path) -> None:
    (work / "a.txt").write_text("two\n")
    await git(work, "mv", "b.txt", "c ü.txt")
    await git(work, "commit", "-q", "-a", "-m", "second\n\nbody")
    head = await git(work, "rev-parse", "HEAD")

    shown = (await instance.get(f"/api/v1/git/commit/{head}")).json()

    assert (shown["success"], shown["message"], shown["author"]) == (
        True,
        "second",
        "Test <test@example.org>",
    )
    assert (shown["files_changed"], shown["insertions"], shown["deletions"]) == (2, 1, 1)
    assert shown["files"]["a.txt"]["diff"] == "@@ -1 +1 @@\n-one\n+two\n"
    assert (shown["files"]["c ü.txt"]["status"], shown["files"]["c ü.txt"]["old_path"]) == (
        "renamed",
        "b.txt",
    )
    unknown = await instance.get("/api/v1/git/commit/deadbeef")
    assert (unknown.status_code, unknown.json()["files"]) == (400, None)


async def test_the_log_is_bounded_by_a_number_a_commit_or_a_branch(instance: Instance, work: Path) -> None:
    first = await git(work, "rev-parse", "HEAD")
    await git(work, "switch", "-q", "-c", "feat")
    for number in range(3):
        await git(work, "commit", "-q", "--allow-empty", "-m", f"c{number}")
    route = "/api/v1/git/log"

    async def subjects(**query: Any) -> list[str]:
        commits = (await instance.get(route, **query)).json()["commits"]
        return [commit["commit_message"] for commit in commits]

    assert await subjects(limit=2) == ["c2", "c1"]
    assert await subjects(since=first) == ["c2", "c1", "c0"]
    assert await subjects(target_branch="main", limit=1) == ["c2", "c1", "c0"]
    assert (await instance.get(route, limit=501)).status_code == 400
    assert (await instance.get(route, limit="many")).json()["commits"] is None


async def test_everything_since_a_base_is_one_diff(instance: Instance, work: Path) -> None:
    first = await git(work, "rev-parse", "HEAD")
    for text in ("two\n", "three\n"):
        (work / "a.txt").write_text(text)
        await git(work, "commit", "-q", "-a", "-m", text)

    body = (await instance.get("/api/v1/git/cumulative-diff", base=first)).json()

    assert (body["success"], body["base_commit"], body["total_commits"]) == (True, first, 2)
    assert body["files"]["a.txt"]["diff"] == "@@ -1 +1 @@\n-one\n+three\n"
    assert (await instance.get("/api/v1/git/cumulative-diff")).status_code == 400
    assert (await instance.get("/api/v1/git/cumulative-diff", base="deadbeef")).status_code == 400


async def test_huge_and_binary_changes_are_told_without_their_text(instance: Instance, work: Path) -> None:
    (work / "a.txt").write_text("x" * 79 + "\n" + "y\n" * 200_000)
    (work / "b.txt").write_bytes(b"\0\1\2")
    (work / "huge.txt").write_bytes(b"x" * (10 * 1024 * 1024 + 1))

    files = (await _status(instance))["files"]

    assert files["a.txt"]["diff_skip_reason"] == "truncated"
    assert len(files["a.txt"]["diff"]) <= 256 * 1024
    assert files["b.txt"]["diff_skip_reason"] == "binary"
    assert files["huge.txt"]["diff_skip_reason"] == "too_large"


async def test_a_workspace_that_is_no_repository_says_so(
    started: tuple[Process, str], tmp_path: Path
) -> None:
    """And git never looks above the workspace."""
    await repository(tmp_path / "above")
    (tmp_path / "above" / "plain").mkdir()
    async with Daemon(*started) as running, running.instance(tmp_path / "above" / "plain") as instance:
        status = await instance.get("/api/v1/git/status")
        done = await instance.git("stage")
        async with instance.stream() as stream:
            await stream.send("ping")
            await stream.until("pong")

    assert (status.status_code, status.json()["success"], status.json()["modified"]) == (500, False, None)
    assert status.json()["timestamp"] == ""
    assert done["success"] is False


async def _diverge(work: Path) -> str:
    await git(work, "switch", "-q", "-c", "other")
    (work / "a.txt").write_text("other\n")
    await git(work, "commit", "-q", "-a", "-m", "other")
    await git(work, "switch", "-q", "main")
    (work / "a.txt").write_text("main\n")
    await git(work, "commit", "-q", "-a", "-m", "main")
    return await git(work, "rev-parse", "HEAD")


async def test_nobody_in_a_workspace_takes_a_repository_above_it_for_its_own(
    started: tuple[Process, str], tmp_path: Path
) -> None:
    inner = await repository(tmp_path / "outer") / "inner"
    inner.mkdir()
    ask = "git rev-parse --show-toplevel"
    async with Daemon(*started) as running, running.instance(inner) as it:
        agent = {"command": "sh", "agent_args": ["sh", "-c", f"{ask} > agent 2>&1"]}
        await it.post("/api/v1/agent/configure", agent)
        await it.post("/api/v1/start")
        start = {"session_id": "s", "kind": "dev", "command": f"{ask} > process 2>&1"}
        await it.post("/api/v1/processes/start", {**start, "working_dir": str(inner)})
        async with it.stream() as stream:
            await stream.type(f"{ask} > shell 2>&1\r")
            whose = [inner / who for who in ("agent", "process", "shell")]
            await eventually(lambda: all("not a git repository" in _text(each) for each in whose), timeout=10)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def test_without_a_repository_log_and_discard_fail_as_git_does(
    started: tuple[Process, str], tmp_path: Path
) -> None:
    (tmp_path / "plain").mkdir()
    async with Daemon(*started) as running, running.instance(tmp_path / "plain") as it:
        log = (await it.get("/api/v1/git/log")).json()
        discarded = (await it.post("/api/v1/git/discard", {"paths": ["a.txt"]})).json()

    assert (log["success"], log["commits"]) == (False, None)
    assert discarded["success"] is False
    assert "not a git repository" in log["error"]
    assert "not a git repository" in discarded["error"]
