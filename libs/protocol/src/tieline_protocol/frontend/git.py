"""Pure: git in the workspace of a session."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tieline_protocol.frontend.actions import Action, OfSession, Payload, Repo, Text, said


class GitRepo(OfSession):
    repo: Repo | None = None


class GitStatus(GitRepo):
    fresh: Annotated[bool, said("ask git now instead of telling what was seen last")] | None = None


class GitPull(GitRepo):
    rebase: bool | None = None


class GitPush(GitRepo):
    force: bool | None = None
    set_upstream: bool | None = None


class GitBase(GitRepo):
    base_branch: Text


class GitAbort(GitRepo):
    operation: Literal["merge", "rebase"]


class GitCommit(GitRepo):
    message: Text
    stage_all: bool | None = None
    amend: bool | None = None


class GitPaths(GitRepo):
    paths: list[Text] | None = None


class GitDiscard(GitRepo):
    paths: Annotated[list[Text], Field(min_length=1)]


class GitSha(GitRepo):
    commit_sha: Text


class GitShow(GitRepo):
    sha: Text


class GitReset(GitSha):
    mode: Literal["soft", "mixed", "hard"] | None = None


class GitRenameBranch(GitRepo):
    new_name: Text


class GitLog(GitRepo):
    since: Annotated[str, said("a commit: only those after it")] | None = None
    target_branch: (
        Annotated[str, said("only commits that this branch lacks, where `since` names none")] | None
    ) = None
    limit: Annotated[int, Field(ge=1, le=500)] | None = None


class GitCumulativeDiff(GitRepo):
    base: Annotated[Text, said("the commit to compare with")]
    target_branch: (
        Annotated[str, said("compare with where this branch was left, where `base` names no commit")] | None
    ) = None


_GIT = "{success, operation, output, error?, …}"
_GIT_SHORT: dict[str, type[Payload]] = {
    "stage": GitPaths,
    "unstage": GitPaths,
    "discard": GitDiscard,
    "abort": GitAbort,
    "reset": GitReset,
    "revert-commit": GitSha,
    "rename-branch": GitRenameBranch,
}
_GIT_LONG: dict[str, type[Payload]] = {
    "commit": GitCommit,
    "push": GitPush,
    "pull": GitPull,
    "rebase": GitBase,
    "merge": GitBase,
}

ACTIONS = (
    Action("git.status", GitStatus, "{success, branch, …, files, error?}", repeat=True),
    Action("git.status-multi", GitStatus, "{success, repos, error?}", repeat=True),
    Action("git.log", GitLog, "{success, commits, error?}", repeat=True),
    Action("git.show", GitShow, "{success, commit_sha, message, author, date, files, …}", repeat=True),
    Action(
        "git.cumulative-diff", GitCumulativeDiff, "{success, base_commit, head_commit, files, …}", repeat=True
    ),
    *(Action(f"git.{name}", payload, _GIT) for name, payload in _GIT_SHORT.items()),
    *(
        Action(f"git.{name}", payload, f"{_GIT}, or {{operation_id}} after 5 s")
        for name, payload in _GIT_LONG.items()
    ),
)
