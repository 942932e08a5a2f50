"""What the git routes take, and which operation of git each stands for."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from pydantic import Field

from tieline_agentctl import git_ops
from tieline_agentctl.git import Repo
from tieline_agentctl.web import Args


class Which(Args):
    repo: str = ""


class Pull(Which):
    rebase: bool = False


class Push(Which):
    force: bool = False
    set_upstream: bool = False


class Onto(Which):
    base_branch: str = Field(min_length=1)


class Abort(Which):
    operation: Literal["merge", "rebase"]


class Commit(Which):
    message: str = Field(min_length=1)
    stage_all: bool = False
    amend: bool = False


class Paths(Which):
    paths: list[str] = Field(default_factory=list)


class SomePaths(Which):
    paths: list[str] = Field(min_length=1)


class OneCommit(Which):
    commit_sha: str = Field(min_length=1)


class Reset(OneCommit):
    mode: Literal["soft", "mixed", "hard"] = "mixed"


class NewName(Which):
    new_name: str = Field(min_length=1)


class Show(Which):
    sha: str


class Log(Which):
    since: str = ""
    target_branch: str = ""
    limit: int = Field(default=100, ge=1, le=500)


class Since(Which):
    base: str = Field(min_length=1)
    target_branch: str = ""


class GetStatus(Which):
    fresh: bool = False


Change = Callable[[Repo, Any], Awaitable[git_ops.Result]]
OPERATIONS: dict[str, tuple[str, type[Which], Change]] = {
    "pull": ("pull", Pull, lambda repo, args: git_ops.pull(repo, args.rebase)),
    "push": ("push", Push, lambda repo, args: git_ops.push(repo, args.force, args.set_upstream)),
    "rebase": ("rebase", Onto, lambda repo, args: git_ops.rebase(repo, args.base_branch)),
    "merge": ("merge", Onto, lambda repo, args: git_ops.merge(repo, args.base_branch)),
    "abort": ("abort", Abort, lambda repo, args: git_ops.abort(repo, args.operation)),
    "commit": (
        "commit",
        Commit,
        lambda repo, args: git_ops.commit(repo, args.message, args.stage_all, args.amend),
    ),
    "stage": ("stage", Paths, lambda repo, args: git_ops.stage(repo, args.paths)),
    "unstage": ("unstage", Paths, lambda repo, args: git_ops.unstage(repo, args.paths)),
    "discard": ("discard", SomePaths, lambda repo, args: git_ops.discard(repo, args.paths)),
    "revert-commit": (
        "revert_commit",
        OneCommit,
        lambda repo, args: git_ops.revert_commit(repo, args.commit_sha),
    ),
    "rename-branch": (
        "rename_branch",
        NewName,
        lambda repo, args: git_ops.rename_branch(repo, args.new_name),
    ),
    "reset": ("reset", Reset, lambda repo, args: git_ops.reset(repo, args.commit_sha, args.mode)),
}
