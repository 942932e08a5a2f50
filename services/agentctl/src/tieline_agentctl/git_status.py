"""The state of one repository as the wire's `git_status` object. Asks git; remembers what rarely changes."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tieline_agentctl import clock
from tieline_agentctl.git import GitFailed, Repo
from tieline_agentctl.git_parse import (
    TOTAL_CAP,
    Change,
    FileDiff,
    Status,
    file_info,
    parse_diff,
    parse_status,
    safe_ref,
)
from tieline_agentctl.wall import now

MOST_COUNTED = 1024 * 1024  # an untracked file larger than this is listed without its number of lines
COUNTED_IN_ALL = 16 * 1024 * 1024
MOST_FILE = 10 * 1024 * 1024
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
STATUS = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--renames")
DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "-M", "--raw", "--numstat", "-p", "-z")


@dataclass(frozen=True, slots=True)
class Base:
    """How the current commit stands to the branch that it is compared with."""

    commit: str = ""
    ahead: int = 0
    behind: int = 0
    additions: int = 0
    deletions: int = 0


class StatusReader:
    def __init__(self, repo: Repo, base_branch: str = "") -> None:
        self.repo = repo
        self.base_branch = base_branch
        self._known: tuple[tuple[str, ...], Base] | None = None

    async def read(self) -> tuple[Status, dict[str, Any]]:
        """Raises GitFailed when git cannot answer."""
        done = await self.repo.read(*STATUS)
        if not done.ok:
            raise GitFailed(done.text or "git status failed")
        status = parse_status(done.out)
        refs = self._base_refs()
        upstream = [status.upstream] if status.upstream else []
        found = (
            await self.repo.resolve(*refs, *upstream) if status.head else [""] * (len(refs) + len(upstream))
        )
        base = await self._base(status.head, [sha for sha in found[: len(refs)] if sha])
        body: dict[str, Any] = {"timestamp": clock.three_digits(now())}
        if self.repo.name:
            body["repository_name"] = self.repo.name
        for kind in ("modified", "added", "deleted", "untracked", "renamed"):
            body[kind] = [change.path for change in status.changes if change.status == kind]
        body |= {"ahead": base.ahead, "behind": base.behind, "branch": status.branch}
        if status.upstream:
            body["remote_branch"] = status.upstream
        body |= {"remote_ahead": status.ahead, "remote_behind": status.behind}
        optional = {
            "remote_head_commit": found[-1] if upstream else "",
            "head_commit": status.head,
            "base_commit": base.commit,
            "files": await self._files(status),
            "branch_additions": base.additions,
            "branch_deletions": base.deletions,
        }
        return status, {**body, **{name: value for name, value in optional.items() if value}}

    def _base_refs(self) -> list[str]:
        if safe_ref(self.base_branch):
            return [f"refs/remotes/origin/{self.base_branch}", f"refs/heads/{self.base_branch}"]
        return [
            "refs/remotes/origin/HEAD",
            "refs/remotes/origin/main",
            "refs/remotes/origin/master",
            "refs/heads/main",
            "refs/heads/master",
        ]

    async def _base(self, head: str, bases: list[str]) -> Base:
        if not head or not bases:
            return Base()
        key = (head, bases[0])
        if self._known is not None and self._known[0] == key:
            return self._known[1]
        merge = await self.repo.read("merge-base", bases[0], head)
        commit = merge.out.decode().strip()
        if not commit:
            return Base()
        counts = await self.repo.read("rev-list", "--left-right", "--count", f"{bases[0]}...{head}")
        behind, ahead = (int(word) for word in counts.out.split()) if counts.ok else (0, 0)
        diff = await self.repo.read("diff", "--numstat", "-z", "-M", commit, head)
        files = parse_diff(diff.out) if diff.ok else []
        base = Base(
            commit,
            ahead,
            behind,
            sum(file.additions for file in files),
            sum(file.deletions for file in files),
        )
        self._known = (key, base)
        return base

    async def _files(self, status: Status) -> dict[str, Any]:
        if not status.changes:
            return {}
        diffs: dict[str, FileDiff] = {}
        if any(change.status != "untracked" for change in status.changes):
            done = await self.repo.read(*DIFF, status.head or EMPTY_TREE, "--")
            if done.ok:
                diffs = {file.path: file for file in parse_diff(done.out)}
        counts = await asyncio.to_thread(_count_lines, self.repo.path, status.changes)
        budget = TOTAL_CAP
        files: dict[str, Any] = {}
        for change in status.changes:
            diff = diffs.get(change.path) or FileDiff(change.path, additions=counts.get(change.path, 0))
            diff.path = change.path
            info, budget = file_info(
                diff, status=change.status, staged=change.staged, old_path=change.old_path, budget=budget
            )
            if counts.get(change.path) == -1:
                info.pop("additions", None)
                info["diff_skip_reason"] = "too_large"
            files[change.path] = info
        return files


def _count_lines(root: Path, changes: list[Change]) -> dict[str, int]:
    counts: dict[str, int] = {}
    left = COUNTED_IN_ALL
    for change in changes:
        if change.status != "untracked":
            continue
        try:
            path = root / change.path
            if path.is_symlink() or not path.is_file():
                continue
            size = path.stat().st_size
            if size > MOST_FILE:
                counts[change.path] = -1
            elif size <= MOST_COUNTED and size <= left:
                data = path.read_bytes()
                left -= size
                if b"\0" not in data[:8000]:
                    counts[change.path] = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
        except OSError:
            continue
    return counts
