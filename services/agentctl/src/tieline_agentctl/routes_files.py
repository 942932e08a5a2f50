"""The file routes. The disk is touched in threads; what was changed is told on the workspace stream."""

import asyncio
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tieline_agentctl import files, paths, searching
from tieline_agentctl.git import GitFailed
from tieline_agentctl.git_parse import safe_revision
from tieline_agentctl.instance import Instance
from tieline_agentctl.paths import FileFailed
from tieline_agentctl.web import Args, BadRequest, answer, arguments, raw_body, route, validated

MOST_QUERY = 200


class Tree(Args):
    path: str = ""
    repo: str = ""
    depth: int = Field(default=1, ge=0)


class OnePath(Args):
    path: str = Field(min_length=1)
    repo: str = ""


class AtRef(OnePath):
    ref: str = Field(min_length=1)


class Write(OnePath):
    diff: str
    original_hash: str
    desired_content: str | None = None


class Rename(Args):
    old_path: str = Field(min_length=1)
    new_path: str = Field(min_length=1)
    repo: str = ""


class Search(Args):
    q: str = ""
    limit: int = 20


class ContentSearch(Args):
    q: str = ""
    limit_per_repo: int = 20


class FileRoutes:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def routes(self) -> list[BaseRoute]:
        base = "/api/v1/workspace"
        return [
            route("GET", f"{base}/tree", self.tree),
            route("GET", f"{base}/file/content", self.content),
            route("POST", f"{base}/file/content", self.write),
            route("GET", f"{base}/file/content-at-ref", self.content_at_ref),
            route("POST", f"{base}/file/create", self.create),
            route("POST", f"{base}/file/rename", self.rename),
            route("DELETE", f"{base}/file", self.delete),
            route("GET", f"{base}/search", self.search),
            route("GET", f"{base}/content-search", self.content_search),
            # The seed's spelling: the same parameters as a JSON body.
            route("POST", f"{base}/file-tree", self.tree),
            route("POST", f"{base}/file-content", self.read_or_write),
            route("POST", f"{base}/file-content-at-ref", self.content_at_ref),
            route("POST", f"{base}/file-create", self.create),
            route("POST", f"{base}/file-rename", self.rename),
            route("POST", f"{base}/file-delete", self.delete),
            route("POST", f"{base}/file-search", self.search),
            route("POST", f"{base}/content-search", self.content_search),
        ]

    async def tree(self, request: Request) -> Response:
        try:
            args = await arguments(request, Tree, empty=True)
            root = self._instance.workspace.folder(args.repo)
            node = await asyncio.to_thread(files.tree, root, args.path, args.depth)
        except (BadRequest, FileFailed) as exc:
            return answer({"request_id": "", "root": None, "error": str(exc)}, 400)
        return answer({"request_id": "", "root": node})

    async def read_or_write(self, request: Request) -> Response:
        """The seed has one route for both: a body with a diff is a change."""
        try:
            body = await raw_body(request)
        except BadRequest as exc:
            return _unread("", str(exc))
        if "diff" in body:
            return await self.write(request)
        return await self.content(request)

    async def content(self, request: Request) -> Response:
        path = request.query_params.get("path", "")
        try:
            args = await arguments(request, OnePath)
            path = args.path
            root = self._instance.workspace.folder(args.repo)
            body = await asyncio.to_thread(files.content, root, path)
        except (BadRequest, FileFailed) as exc:
            return _unread(path, str(exc), getattr(exc, "size", 0))
        return answer({"request_id": "", "path": path, **body})

    async def content_at_ref(self, request: Request) -> Response:
        path = request.query_params.get("path", "")
        try:
            args = await arguments(request, AtRef)
            path = args.path
            if not safe_revision(args.ref):
                raise BadRequest(f"invalid ref: {args.ref!r}")
            repo = self._instance.workspace.repo(args.repo)
            if path.startswith(("/", "./", "../")) or "\0" in path or "\n" in path:
                raise BadRequest(f"path outside the workspace: {path}")
            done = await repo.read("cat-file", "blob", f"{args.ref}:{path}", most=files.MOST + 1)
            if not done.ok:
                raise FileFailed(done.err.decode("utf-8", "replace").strip() or "not found")
            body = files.text_or_binary(done.out)
        except (BadRequest, FileFailed, GitFailed) as exc:
            return _unread(path, str(exc), getattr(exc, "size", 0))
        return answer({"request_id": "", "path": path, **body})

    async def write(self, request: Request) -> Response:
        path = ""
        try:
            raw = await raw_body(request)
            path = raw["path"] if isinstance(raw.get("path"), str) else ""
            args = validated(Write, raw)
            root = self._instance.workspace.folder(args.repo)
            digest, resolution = await asyncio.to_thread(
                files.write, root, path, args.diff, args.original_hash, args.desired_content
            )
        except (BadRequest, FileFailed) as exc:
            return answer({"request_id": "", "path": path, "success": False, "error": str(exc)}, 400)
        self._changed(args.repo, path, "write")
        done = {"success": True, "new_hash": digest, "resolution": resolution}
        return answer({"request_id": "", "path": path, **done})

    async def create(self, request: Request) -> Response:
        path = ""
        try:
            args = await arguments(request, OnePath)
            path = args.path
            await asyncio.to_thread(files.create, self._instance.workspace.folder(args.repo), path)
        except (BadRequest, FileFailed) as exc:
            return answer({"path": path, "success": False, "error": str(exc)}, 400)
        self._changed(args.repo, path, "create")
        return answer({"path": path, "success": True})

    async def rename(self, request: Request) -> Response:
        names = {"old_path": "", "new_path": ""}
        try:
            args = await arguments(request, Rename)
            names = {"old_path": args.old_path, "new_path": args.new_path}
            root = self._instance.workspace.folder(args.repo)
            await asyncio.to_thread(files.rename, root, args.old_path, args.new_path)
        except (BadRequest, FileFailed) as exc:
            return answer({**names, "success": False, "error": str(exc)}, 400)
        self._changed(args.repo, args.old_path, "rename", "remove")
        self._changed(args.repo, args.new_path, "rename", "create")
        return answer({**names, "success": True})

    async def delete(self, request: Request) -> Response:
        path = request.query_params.get("path", "")
        try:
            args = await arguments(request, OnePath)
            path = args.path
            await asyncio.to_thread(files.delete, self._instance.workspace.folder(args.repo), path)
        except (BadRequest, FileFailed) as exc:
            return answer({"request_id": "", "path": path, "success": False, "error": str(exc)}, 400)
        self._changed(args.repo, path, "remove")
        return answer({"request_id": "", "path": path, "success": True})

    async def search(self, request: Request) -> Response:
        try:
            args = await arguments(request, Search, empty=True)
        except BadRequest as exc:
            return answer({"files": [], "results": [], "error": str(exc)}, 400)
        if not args.q:
            return answer({"files": [], "results": []})
        limit = max(1, min(args.limit, 200))
        names = await self._instance.workspace.index.files()
        found = await asyncio.to_thread(searching.best_names, args.q, list(names), limit)
        repos = {tracker.repo.name for tracker in self._instance.workspace.trackers() if tracker.repo.name}
        results = []
        for path in found:
            first, slash, rest = path.partition("/")
            mine = slash and first in repos
            results.append({"repository_name": first, "path": rest} if mine else {"path": path})
        return answer({"files": found, "results": results})

    async def content_search(self, request: Request) -> Response:
        try:
            args = await arguments(request, ContentSearch, empty=True)
            if len(args.q) > MOST_QUERY:
                raise BadRequest(f"query too long (max {MOST_QUERY} characters)")
        except BadRequest as exc:
            return answer({"results": [], "error": str(exc)}, 400)
        if not args.q:
            return answer({"results": []})
        limit = max(1, min(args.limit_per_repo, 50))
        workspace = self._instance.workspace
        names = await workspace.index.files()
        repos = sorted(tracker.repo.name for tracker in workspace.trackers() if tracker.repo.name)
        results: list[dict[str, Any]] = []
        for repo in ("", *repos):
            if repo:
                mine = [name.removeprefix(f"{repo}/") for name in names if name.startswith(f"{repo}/")]
            else:
                mine = [name for name in names if name.partition("/")[0] not in repos]
            results += await asyncio.to_thread(
                files.search_contents, workspace.folder(repo), mine, args.q, limit, repo
            )
        return answer({"results": results})

    def _changed(self, repo: str, path: str, operation: str, expect: str = "") -> None:
        plain = paths.plain_name(path)
        self._instance.workspace.changed(f"{repo}/{plain}" if repo else plain, operation, expect)


def _unread(path: str, error: str, size: int = 0) -> Response:
    return answer({"request_id": "", "path": path, "content": "", "size": size, "error": error}, 400)
