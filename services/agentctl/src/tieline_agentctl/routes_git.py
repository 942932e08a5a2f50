"""The git routes. One operation at a time for each repository; every operation tells a fresh status before it ends."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tieline_agentctl import git_ops, git_read
from tieline_agentctl.git import Busy, GitFailed
from tieline_agentctl.git_parse import safe_revision
from tieline_agentctl.git_requests import OPERATIONS, Change, GetStatus, Log, Show, Since
from tieline_agentctl.instance import Instance
from tieline_agentctl.tracker import Tracker, refresh_quietly
from tieline_agentctl.web import BadRequest, answer, arguments, route

BASES = ("/api/v1/git", "/api/v1/workspace/git")
LISTS = ("modified", "added", "deleted", "untracked", "renamed")


class GitRoutes:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def routes(self) -> list[BaseRoute]:
        found: list[BaseRoute] = []
        for base in BASES:
            # Questions are GETs on the wire; the seed's spelling asks with a JSON body.
            for method in ("GET", "POST") if base == BASES[1] else ("GET",):
                found += [
                    route(method, f"{base}/commit/{{sha}}", self.show),
                    route(method, f"{base}/log", self.log),
                    route(method, f"{base}/cumulative-diff", self.cumulative_diff),
                    route(method, f"{base}/status", self.status),
                    route(method, f"{base}/status/multi", self.status_multi),
                ]
            found += [route("POST", f"{base}/{path}", self._operation(path)) for path in OPERATIONS]
        return found

    def _operation(self, path: str) -> Callable[[Request], Awaitable[Response]]:
        name, model, change = OPERATIONS[path]

        async def handler(request: Request) -> Response:
            try:
                args = await arguments(request, model)
                sha = getattr(args, "commit_sha", "")
                if sha and not safe_revision(sha):
                    raise BadRequest(f"not a commit: {sha!r}")
                for one in getattr(args, "paths", []):
                    _check(one)
                tracker = self._instance.workspace.tracker(args.repo)
            except BadRequest as exc:
                return answer(git_ops.failed(name, str(exc)), 400)
            return await self._perform(name, tracker, args, change)

        return handler

    async def _perform(self, name: str, tracker: Tracker, args: Any, change: Change) -> Response:
        try:
            async with tracker.repo.operation(name):
                (before,) = await tracker.repo.resolve("HEAD")
                result = await change(tracker.repo, args)
                if result["success"] and name == "commit":
                    await tracker.committed(before, args.amend)
                elif result["success"] and name == "reset":
                    await tracker.was_reset(before)
                await refresh_quietly(tracker, always=True)
                return answer(result)
        except Busy:
            return answer(git_ops.failed(name, "another git operation is already in progress"), 409)
        except (git_ops.InvalidName, GitFailed) as exc:
            return answer(git_ops.failed(name, str(exc)), 500)

    async def show(self, request: Request) -> Response:
        try:
            args = await arguments(request, Show, empty=True)
            return answer(await git_read.commit(self._instance.workspace.repo(args.repo), args.sha))
        except (BadRequest, git_read.Unknown) as exc:
            return _unanswered(str(exc), 400, commit_sha=request.path_params["sha"], files=None)
        except GitFailed as exc:
            return _unanswered(str(exc), 500, commit_sha=request.path_params["sha"], files=None)

    async def log(self, request: Request) -> Response:
        try:
            args = await arguments(request, Log, empty=True)
            workspace = self._instance.workspace
            names = {tracker.repo.name for tracker in workspace.trackers()}
            several = not args.repo and bool(names) and "" not in names
            repos = (
                [tracker.repo for tracker in workspace.trackers()] if several else [workspace.repo(args.repo)]
            )
        except BadRequest as exc:
            return _unanswered(str(exc), 400, commits=None)
        commits: list[dict[str, Any]] = []
        errors: list[dict[str, str]] = []
        for repo in repos:
            try:
                commits += await git_read.log(repo, args.since, args.target_branch, args.limit)
            except (GitFailed, git_read.Unknown) as exc:
                if not several:
                    return _unanswered(str(exc), 500 if isinstance(exc, GitFailed) else 400, commits=None)
                errors.append({"repository_name": repo.name, "error": str(exc)})
        body: dict[str, Any] = {"success": True, "commits": commits}
        return answer({**body, "per_repo_errors": errors} if errors else body)

    async def cumulative_diff(self, request: Request) -> Response:
        try:
            args = await arguments(request, Since, empty=True)
            repo = self._instance.workspace.repo(args.repo)
            return answer(await git_read.cumulative_diff(repo, args.base, args.target_branch))
        except (BadRequest, git_read.Unknown) as exc:
            return _unanswered(str(exc), 400, files=None)
        except GitFailed as exc:
            return _unanswered(str(exc), 500, files=None)

    async def status(self, request: Request) -> Response:
        try:
            args = await arguments(request, GetStatus, empty=True)
            tracker = self._instance.workspace.tracker(args.repo)
        except BadRequest as exc:
            return answer(_no_status(str(exc)), 400)
        try:
            return answer(await self._status_of(tracker, args.fresh))
        except GitFailed as exc:
            return answer(_no_status(str(exc)), 500)

    async def status_multi(self, request: Request) -> Response:
        args = await arguments(request, GetStatus, empty=True)
        trackers = self._instance.workspace.trackers() or [self._instance.workspace.tracker()]
        repos = []
        for tracker in trackers:
            try:
                status = await self._status_of(tracker, args.fresh)
            except GitFailed as exc:
                status = _no_status(str(exc))
            repos.append({"repository_name": tracker.repo.name, "status": status})
        return answer({"success": True, "repos": repos})

    async def _status_of(self, tracker: Tracker, fresh: bool) -> dict[str, Any]:
        body = tracker.body if tracker.body is not None and not fresh else await tracker.refresh()
        filled = {"remote_branch": "", "head_commit": "", "base_commit": "", "files": {}, **body}
        return {"success": True, **filled}


def _check(path: str) -> None:
    if path.startswith("/") or ".." in path.split("/") or "\0" in path or not path:
        raise BadRequest(f"path outside the workspace: {path!r}")


def _unanswered(error: str, status: int, **fields: Any) -> Response:
    return answer({"success": False, **fields, "error": error}, status)


def _no_status(error: str) -> dict[str, Any]:
    blank: dict[str, Any] = {"branch": "", "remote_branch": "", "head_commit": "", "base_commit": ""}
    numbers = dict.fromkeys(("ahead", "behind", "remote_ahead", "remote_behind"), 0)
    lists = dict.fromkeys((*LISTS, "files"))
    return {"success": False, **blank, **numbers, **lists, "timestamp": "", "error": error}
