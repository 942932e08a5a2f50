"""Follows one repository: tells its status when it changes, and commits, resets and branch switches as they happen."""

import asyncio
from typing import Any

import structlog

from tieline_agentctl import clock, git_parse, workspace_frames
from tieline_agentctl.git import GitFailed, Repo
from tieline_agentctl.git_events import At, meaning
from tieline_agentctl.git_status import StatusReader
from tieline_agentctl.hub import Hub
from tieline_agentctl.wall import now, now_ms

log = structlog.get_logger()

MOST_COMMITS = 100  # told one by one; more than these at once are read through the log


class Tracker:
    def __init__(self, repo: Repo, hub: Hub, base_branch: str) -> None:
        self.repo = repo
        self.key = f"git_status {repo.name}"
        self.reader = StatusReader(repo, base_branch)
        self.body: dict[str, Any] | None = None
        self._hub = hub
        self._at: At | None = None
        self._told: dict[str, Any] | None = None
        self._reading = asyncio.Lock()

    async def refresh(self, *, always: bool = False) -> dict[str, Any]:
        """Read the status and tell what is new; with `always`, tell the status even when it is not."""
        async with self._reading:
            status, body = await self.reader.read()
            self.body = body
            before, self._at = self._at, At(status.branch, status.head)
            await self._tell_move(before, self._at, body.get("base_commit", ""))
            plain = {name: value for name, value in body.items() if name != "timestamp"}
            if always or plain != self._told:
                self._told = plain
                self._hub.fact(self.frame(body), self.key)
            return body

    def frame(self, body: dict[str, Any]) -> str:
        return workspace_frames.frame("git_status", now_ms(), git_status=body)

    async def committed(self, previous: str, amended: bool) -> None:
        """Told by the commit operation itself: the whole message, and the zero time as the wire has it."""
        (head,) = await self.repo.resolve("HEAD")
        if not head:
            return
        if amended and previous:
            self._tell_reset(previous, head)
        message = await self.repo.read("log", "-1", "--format=%B", head)
        for commit in await self._commits(f"-1 {head}"):
            self._tell_commit(commit, clock.ZERO, message.out.decode("utf-8", "replace").strip("\n"))
        if self._at is not None:
            self._at = At(self._at.branch, head)

    async def was_reset(self, previous: str) -> None:
        """Told by the reset operation itself, also when it ended where it began."""
        (head,) = await self.repo.resolve("HEAD")
        if head and previous:
            self._tell_reset(previous, head)
            if self._at is not None:
                self._at = At(self._at.branch, head)

    async def _tell_move(self, before: At | None, after: At, base: str) -> None:
        match meaning(before, after):
            case "switch" if base and before is not None:
                switch = {
                    "previous_branch": before.branch,
                    "current_branch": after.branch,
                    "current_head": after.head,
                    "base_commit": base,
                }
                self._tell("branch_switch", switch)
            case "moved":
                assert before is not None
                ancestor = await self.repo.read("merge-base", "--is-ancestor", before.head, after.head)
                if ancestor.ok:
                    await self._tell_commits(f"{before.head}..{after.head}")
                else:
                    self._tell_reset(before.head, after.head)
            case "first":
                await self._tell_commits(after.head)

    async def _tell_commits(self, which: str) -> None:
        """Newest first; what a remote already has is not news."""
        for commit in await self._commits(f"{which} --not --remotes"):
            self._tell_commit(commit, clock.nano(now()), commit.subject)

    async def _commits(self, which: str) -> list[git_parse.Commit]:
        form = f"--format={git_parse.LOG_FORMAT}"
        limit = f"--max-count={MOST_COMMITS}"
        done = await self.repo.read(
            "log", limit, "--shortstat", "--diff-merges=first-parent", form, *which.split()
        )
        return git_parse.parse_log(done.out) if done.ok else []

    def _tell_commit(self, commit: git_parse.Commit, stamp: str, message: str) -> None:
        self._tell(
            "git_commit",
            {
                "commit_sha": commit.sha,
                "parent_sha": commit.parent,
                "message": message,
                "author_name": commit.author,
                "author_email": commit.email,
                "files_changed": commit.files,
                "insertions": commit.insertions,
                "deletions": commit.deletions,
                "committed_at": commit.date,
            },
            stamp,
        )

    def _tell_reset(self, previous: str, current: str) -> None:
        self._tell("git_reset", {"previous_head": previous, "current_head": current})

    def _tell(self, kind: str, body: dict[str, Any], stamp: str = "") -> None:
        named = {"repository_name": self.repo.name} if self.repo.name else {}
        full = {"timestamp": stamp or clock.nano(now()), **named, **body}
        self._hub.fact(workspace_frames.frame(kind, now_ms(), **{kind: full}))


async def refresh_quietly(tracker: Tracker, *, always: bool = False) -> bool:
    """For pollers: a git that fails now may work the next time. Whether it worked."""
    try:
        await tracker.refresh(always=always)
    except GitFailed as exc:
        log.warning("git status failed", repository=tracker.repo.name, error=str(exc))
        return False
    return True
