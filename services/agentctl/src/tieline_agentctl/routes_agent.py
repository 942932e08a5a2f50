"""Health, status, info, metrics, and the agent's life cycle. The agent itself is behind instance.agent."""

import asyncio
import os
import shutil

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tieline_agentctl import metrics
from tieline_agentctl.agent import AgentFailure
from tieline_agentctl.control import health_answer
from tieline_agentctl.instance import Instance
from tieline_agentctl.web import Args, BadRequest, answer, raw_body, route, validated

VERSION = "0.1.0"


class Configure(Args):
    command: str = ""
    agent_args: list[str] | None = None
    env: dict[str, str] = Field(default_factory=dict)
    approval_policy: str = ""


class AgentRoutes:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def routes(self) -> list[BaseRoute]:
        return [
            route("GET", "/health", self.health),
            route("GET", "/api/v1/health", self.health),
            route("GET", "/api/v1/status", self.status),
            route("GET", "/api/v1/info", self.info),
            route("GET", "/api/v1/system/metrics", self.metrics),
            route("POST", "/api/v1/agent/configure", self.configure),
            route("POST", "/api/v1/configure", self.configure),
            route("POST", "/api/v1/start", self.start),
            route("POST", "/api/v1/stop", self.stop),
        ]

    async def health(self, request: Request) -> Response:
        return health_answer()

    async def status(self, request: Request) -> Response:
        return answer(self._instance.agent.status())

    async def info(self, request: Request) -> Response:
        return answer(
            {
                "version": VERSION,
                "agent_command": self._instance.agent.command,
                "work_dir": str(self._instance.path),
                "port": self._instance.port,
            }
        )

    async def metrics(self, request: Request) -> Response:
        wanted = [name for name in request.query_params.get("metrics", "").split(",") if name]
        body: dict[str, object] = {"id": "agentctl", "label": "Execution", "kind": "execution"}
        for name in ("session_id", "task_id"):
            if value := getattr(self._instance.create, name):
                body[name] = value
        disk = request.query_params.get("disk_path") or str(self._instance.path)
        body["metrics"] = metrics.collect(wanted, os.getloadavg, shutil.disk_usage, disk)
        return answer(body)

    async def configure(self, request: Request) -> Response:
        try:
            body = await raw_body(request)
            wanted = validated(Configure, body)
        except BadRequest as exc:
            return _failed(str(exc), 400)
        if not wanted.command.strip():
            return _failed("command is required", 400)
        # That the argument list is there matters, even when it is null: then it names no executable.
        args = (wanted.agent_args or []) if "agent_args" in body else None
        try:
            self._instance.agent.configure(
                command=wanted.command,
                agent_args=args,
                env=wanted.env,
                approval_policy=wanted.approval_policy,
            )
        except AgentFailure as exc:
            return _failed(str(exc), 500)
        return answer({"success": True, "message": "agent configured"})

    async def start(self, request: Request) -> Response:
        try:
            command = await self._instance.start()
        except AgentFailure as exc:
            return _failed(str(exc), 500)
        return answer({"success": True, "message": "agent started", "command": command})

    async def stop(self, request: Request) -> Response:
        try:
            await asyncio.shield(self._instance.stop())
        except AgentFailure as exc:
            return _failed(str(exc), 500)
        return answer({"success": True, "message": "agent stopped"})


def _failed(text: str, status: int) -> Response:
    return answer({"success": False, "error": text}, status)
