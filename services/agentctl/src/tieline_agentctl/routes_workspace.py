"""What clients push about the workspace: how closely to follow it, where it is, what branches compare with."""

from pathlib import Path
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tieline_agentctl.instance import Instance
from tieline_agentctl.web import Args, BadRequest, answer, arguments, failure, route
from tieline_agentctl.workspace import MODES


class PollMode(Args):
    mode: str


class Place(Args):
    work_dir: str = ""
    workspace_source_roots: list[str] | None = None


class BaseBranches(Args):
    base_branches: dict[str, str] = Field(default_factory=dict)


class ComparisonTargets(Args):
    comparison_targets: dict[str, dict[str, Any]] = Field(default_factory=dict)


class WorkspaceRoutes:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def routes(self) -> list[BaseRoute]:
        base = "/api/v1/workspace"
        return [
            route("POST", f"{base}/poll-mode", self.poll_mode),
            route("POST", f"{base}/rescan", self.rescan),
            route("POST", f"{base}/reconcile", self.rescan),
            route("POST", f"{base}/rebind", self.rebind),
            route("POST", f"{base}/base-branches", self.base_branches),
            route("POST", f"{base}/comparison-targets", self.comparison_targets),
        ]

    async def poll_mode(self, request: Request) -> Response:
        wanted = await arguments(request, PollMode)
        if wanted.mode not in MODES:
            raise BadRequest(f"invalid mode: {wanted.mode!r}")
        self._instance.workspace.set_mode(wanted.mode)
        return answer({"mode": wanted.mode})

    async def rescan(self, request: Request) -> Response:
        wanted = await arguments(request, Place, empty=True)
        workspace = self._instance.workspace
        if wanted.work_dir and Path(wanted.work_dir).resolve() != workspace.path.resolve():
            return await self._move(wanted)
        if wanted.workspace_source_roots is not None:
            workspace.source_roots = [Path(root) for root in wanted.workspace_source_roots]
        workspace.rescan()
        return answer({"ok": True})

    async def rebind(self, request: Request) -> Response:
        wanted = await arguments(request, Place)
        if not wanted.work_dir:
            raise BadRequest("work_dir is required")
        return await self._move(wanted)

    async def _move(self, wanted: Place) -> Response:
        path = Path(wanted.work_dir)
        if not path.is_absolute() or not path.is_dir():
            return failure(f"not a directory: {wanted.work_dir}", 422)
        await self._instance.move_to(path, wanted.workspace_source_roots)
        return answer({"ok": True})

    async def base_branches(self, request: Request) -> Response:
        wanted = await arguments(request, BaseBranches)
        self._instance.workspace.set_bases(wanted.base_branches)
        return answer({"ok": True})

    async def comparison_targets(self, request: Request) -> Response:
        """Taken and not used: what a forge compares with is not known here."""
        await arguments(request, ComparisonTargets)
        return answer({"ok": True})
