"""What asks a repository about its history: one commit, the log, everything since a base."""

from typing import Any

from tieline_agentctl import git_parse
from tieline_agentctl.git import Repo
from tieline_agentctl.git_parse import LOG_FORMAT, TOTAL_CAP, file_info, parse_diff, parse_log
from tieline_agentctl.git_status import DIFF, EMPTY_TREE

MOST_FILES = 500


class Unknown(Exception):
    """A name that means nothing here: 400 with this text."""


async def commit(repo: Repo, sha: str) -> dict[str, Any]:
    (full,) = await repo.resolve(sha) if git_parse.safe_revision(sha) else [""]
    if not full:
        raise Unknown(f"unknown commit: {sha}")
    form = "--format=%x00%s%x00%an <%ae>%x00%aI%x00%P%x00"
    done = await repo.read("log", "-1", form, full)
    _, subject, author, date, parents, *_ = done.out.decode("utf-8", "replace").split("\0")
    files, additions, deletions, _ = await _files(repo, parents.split(" ")[0] or EMPTY_TREE, full)
    return {
        "success": True,
        "commit_sha": full,
        "message": subject,
        "author": author,
        "date": date,
        "files": files,
        "files_changed": len(files),
        "insertions": additions,
        "deletions": deletions,
    }


async def log(repo: Repo, since: str, target_branch: str, limit: int) -> list[dict[str, Any]]:
    there = await repo.read("rev-parse", "--git-dir")
    if not there.ok:
        raise Unknown(there.text.removeprefix("fatal: "))
    base = await _range_base(repo, since, target_branch)
    which = [f"{base}..HEAD"] if base else [f"--max-count={limit}", "HEAD"]
    if not (await repo.resolve("HEAD"))[0]:
        return []
    done = await repo.read(
        "log", "--shortstat", "--diff-merges=first-parent", f"--format={LOG_FORMAT}", *which
    )
    unpushed = set((await repo.read("rev-list", "HEAD", "--not", "--remotes")).out.decode().split())
    named = {"repository_name": repo.name} if repo.name else {}
    return [
        {
            "commit_sha": one.sha,
            "parent_sha": one.parent,
            "commit_message": one.subject,
            "author_name": one.author,
            "author_email": one.email,
            "committed_at": one.date,
            "files_changed": one.files,
            "insertions": one.insertions,
            "deletions": one.deletions,
            "pushed": one.sha not in unpushed,
            **named,
        }
        for one in parse_log(done.out)
    ]


async def cumulative_diff(repo: Repo, base: str, target_branch: str) -> dict[str, Any]:
    """From where the branch left its base to the last commit."""
    start = await _range_base(repo, base, target_branch)
    (head,) = await repo.resolve("HEAD")
    if not start or not head:
        raise Unknown(f"unknown commit: {base}")
    count = await repo.read("rev-list", "--count", f"{start}..{head}")
    files, _, _, left_out = await _files(repo, start, head)
    body: dict[str, Any] = {
        "success": True,
        "base_commit": start,
        "head_commit": head,
        "total_commits": int(count.out or b"0"),
        "files": files,
    }
    return {**body, "truncated_files_count": left_out} if left_out else body


async def _range_base(repo: Repo, since: str, target_branch: str) -> str:
    if git_parse.safe_revision(since):
        (full,) = await repo.resolve(since)
        if full:
            merge = await repo.read("merge-base", full, "HEAD")
            return merge.out.decode().strip() or full
    if target_branch and git_parse.safe_ref(target_branch):
        remote, local = await repo.resolve(f"refs/remotes/origin/{target_branch}", target_branch)
        if remote or local:
            return (await repo.read("merge-base", remote or local, "HEAD")).out.decode().strip()
    return ""


async def _files(repo: Repo, old: str, new: str) -> tuple[dict[str, Any], int, int, int]:
    done = await repo.read(*DIFF, old, new, "--")
    found = parse_diff(done.out)
    budget = TOTAL_CAP
    files: dict[str, Any] = {}
    for file in found[:MOST_FILES]:
        files[file.path], budget = file_info(file, budget=budget)
    additions = sum(file.additions for file in found)
    deletions = sum(file.deletions for file in found)
    return files, additions, deletions, max(0, len(found) - MOST_FILES)
