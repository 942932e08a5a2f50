"""What changes a repository. Each operation answers with the wire's result object, git's own refusal included."""

import asyncio
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tieline_agentctl import git_parse
from tieline_agentctl.git import Done, Repo
from tieline_agentctl.git_parse import Status, parse_status
from tieline_agentctl.git_status import STATUS

FROM_STDIN = ("--pathspec-from-file=-", "--pathspec-file-nul")
Result = dict[str, Any]


class InvalidName(Exception):
    """A name that no branch can have: 500, as the wire has it."""


def result(operation: str, done: Done, **more: Any) -> Result:
    body: Result = {"success": done.ok, "operation": operation, "output": done.text}
    if not done.ok:
        body["error"] = _reason(done)
    return {**body, **{name: value for name, value in more.items() if value}}


def failed(operation: str, error: str, output: str = "") -> Result:
    return {"success": False, "operation": operation, "output": output, "error": error}


def _reason(done: Done) -> str:
    """The line that says why: git's own `error:` or `fatal:` where there is one."""
    lines = [line.strip() for line in done.text.splitlines() if line.strip()]
    for line in lines:
        if line.startswith(("fatal: ", "error: ")):
            return line.partition(": ")[2]
    return lines[-1] if lines else f"git ended with code {done.code}"


async def commit(repo: Repo, message: str, stage_all: bool, amend: bool) -> Result:
    if stage_all:
        added = await repo.work("add", "-A")
        if not added.ok:
            return result("commit", added)
    args = ["commit", "-F", "-", *(["--amend"] if amend else [])]
    return result("commit", await repo.work(*args, stdin=message.encode("utf-8", "replace")))


async def stage(repo: Repo, paths: list[str]) -> Result:
    if not paths:
        return result("stage", await repo.work("add", "-A"))
    return result("stage", await repo.work("add", "-A", *FROM_STDIN, stdin=_listed(paths)))


async def unstage(repo: Repo, paths: list[str]) -> Result:
    if not paths:
        return result("unstage", await repo.work("reset", "-q"))
    # The new name of a rename is one side of it; its old name belongs to it.
    status = await _status(repo)
    olds = [change.old_path for change in status.changes if change.old_path and change.path in paths]
    return result("unstage", await repo.work("reset", "-q", *FROM_STDIN, stdin=_listed([*paths, *olds])))


async def discard(repo: Repo, paths: list[str]) -> Result:
    """Back to the last commit; what it does not have is deleted."""
    restore: list[str] = []
    forget: list[str] = []
    delete: list[str] = []
    asked = await repo.read(*STATUS)
    if not asked.ok:
        return result("discard", asked)
    for change in parse_status(asked.out).changes:
        if not _covered(change.path, paths):
            continue
        if change.status == "untracked":
            delete.append(change.path)
        elif change.status == "added":
            forget.append(change.path)
            delete.append(change.path)
        elif change.status == "renamed":
            forget.append(change.path)
            delete.append(change.path)
            restore.append(change.old_path)
        else:
            restore.append(change.path)
    outputs: list[str] = []
    if forget:
        done = await repo.work("rm", "-q", "--cached", "--force", *FROM_STDIN, stdin=_listed(forget))
        if not done.ok:
            return result("discard", done)
        outputs.append(done.text)
    if restore:
        done = await repo.work(
            "restore", "--source=HEAD", "--staged", "--worktree", *FROM_STDIN, stdin=_listed(restore)
        )
        if not done.ok:
            return result("discard", done)
        outputs.append(done.text)
    try:
        await asyncio.to_thread(_delete, repo.path, delete)
    except OSError as exc:
        return failed("discard", str(exc))
    return {"success": True, "operation": "discard", "output": "\n".join(text for text in outputs if text)}


async def pull(repo: Repo, rebase: bool) -> Result:
    done = await repo.work("pull", "--rebase" if rebase else "--no-rebase", "--no-edit")
    if done.ok:
        return result("pull", done)
    conflicts = await _conflicts(repo)
    if conflicts and rebase:
        await repo.work("rebase", "--abort")
    return _conflicted("pull", done, conflicts, "rebase conflict" if rebase else "merge conflict")


async def push(repo: Repo, force: bool, set_upstream: bool) -> Result:
    args = ["push"]
    if force:
        args.append("--force-with-lease")
    if set_upstream:
        branch = (await _status(repo)).branch
        if not branch:
            return failed("push", "no branch is checked out")
        args += ["--set-upstream", "origin", branch]
    return result("push", await repo.work(*args))


async def rebase(repo: Repo, base_branch: str) -> Result:
    done = await repo.work("rebase", await _base(repo, base_branch))
    if done.ok:
        return result("rebase", done)
    conflicts = await _conflicts(repo)
    if conflicts:
        await repo.work("rebase", "--abort")
    return _conflicted("rebase", done, conflicts, "rebase conflict")


async def merge(repo: Repo, base_branch: str) -> Result:
    """A conflict is left in place, for somebody to solve."""
    done = await repo.work("merge", "--no-edit", await _base(repo, base_branch))
    return (
        result("merge", done)
        if done.ok
        else _conflicted("merge", done, await _conflicts(repo), "merge conflict")
    )


async def abort(repo: Repo, operation: str) -> Result:
    return result("abort", await repo.work(operation, "--abort"))


async def revert_commit(repo: Repo, sha: str) -> Result:
    wanted, head, parent = await repo.resolve(sha, "HEAD", "HEAD~1")
    if not wanted or wanted != head:
        return failed("revert_commit", "only the newest commit can be reverted")
    if not parent:
        return failed("revert_commit", "the first commit has nothing before it")
    return result("revert_commit", await repo.work("reset", "--soft", parent))


async def rename_branch(repo: Repo, new_name: str) -> Result:
    if not git_parse.safe_ref(new_name):
        raise InvalidName(f"invalid branch name: {new_name!r}")
    return result("rename_branch", await repo.work("branch", "-m", new_name))


async def reset(repo: Repo, sha: str, mode: str) -> Result:
    (wanted,) = await repo.resolve(sha)
    if not wanted:
        return failed("reset", f"unknown commit: {sha}")
    return result("reset", await repo.work("reset", f"--{mode}", wanted, "--"))


async def _base(repo: Repo, name: str) -> str:
    """What the remote has of a branch is newer than the local copy that nobody pulls."""
    if not git_parse.safe_ref(name):
        raise InvalidName(f"invalid branch name: {name!r}")
    remotes = (await repo.read("remote")).out.split()
    if b"origin" in remotes:
        await repo.work("fetch", "--quiet", "origin", name)
    (remote,) = await repo.resolve(f"refs/remotes/origin/{name}")
    return f"refs/remotes/origin/{name}" if remote else name


async def _status(repo: Repo) -> Status:
    done = await repo.read(*STATUS)
    return parse_status(done.out) if done.ok else Status()


async def _conflicts(repo: Repo) -> list[str]:
    return git_parse.names((await repo.read("diff", "--name-only", "--diff-filter=U", "-z")).out)


def _conflicted(operation: str, done: Done, conflicts: list[str], error: str) -> Result:
    if not conflicts:
        return result(operation, done)
    return {**result(operation, done), "error": error, "conflict_files": conflicts}


def _covered(path: str, wanted: Iterable[str]) -> bool:
    return any(path == one.rstrip("/") or path.startswith(one.rstrip("/") + "/") for one in wanted)


def _listed(paths: list[str]) -> bytes:
    return b"\0".join(os.fsencode(path) for path in paths) + b"\0"


def _delete(root: Path, paths: list[str]) -> None:
    top = root.resolve()
    for path in paths:
        target = root / path
        # A directory on the way may have been replaced by a link to somewhere else.
        if not target.parent.resolve().is_relative_to(top):
            continue
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
