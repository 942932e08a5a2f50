"""The shell's routes, and the processes': both run commands and both are told about on the workspace stream."""

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tieline_agentctl.instance import Instance
from tieline_agentctl.processes import Start
from tieline_agentctl.shell import ShellFailed
from tieline_agentctl.web import Args, answer, arguments, failure, route


class Stop(Args):
    process_id: str = Field(min_length=1)


class Which(Args):
    id: str = ""
    session_id: str = ""
    include_output: bool = False


class ShellRoutes:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def routes(self) -> list[BaseRoute]:
        paths = [
            route("GET", "/api/v1/shell/status", self.status),
            route("GET", "/api/v1/shell/buffer", self.buffer),
            route("POST", "/api/v1/shell/start", self.start),
            route("GET", "/api/v1/processes", self.processes),
        ]
        for base in ("/api/v1/processes", "/api/v1/process"):
            paths += [
                route("POST", f"{base}/start", self.start_process),
                route("POST", f"{base}/stop", self.stop_process),
                route("GET", f"{base}/{{id}}", self.process),
            ]
        return list(paths)

    async def status(self, request: Request) -> Response:
        return answer(self._instance.shell.status())

    async def buffer(self, request: Request) -> Response:
        if not self._instance.shell.available:
            return failure("shell not available", 503)
        return answer({"data": self._instance.shell.buffer()})

    async def start(self, request: Request) -> Response:
        try:
            self._instance.shell.start(self._instance.tasks)
        except ShellFailed as exc:
            return failure(str(exc), 500)
        return answer({"status": "shell started"})

    async def start_process(self, request: Request) -> Response:
        wanted = await arguments(request, Start)
        running = await self._instance.processes.start(wanted, self._instance.tasks)
        return answer({"process": running.info()})

    async def stop_process(self, request: Request) -> Response:
        wanted = await arguments(request, Stop)
        await self._instance.processes.stop(wanted.process_id)
        return answer({"success": True})

    async def processes(self, request: Request) -> Response:
        wanted = await arguments(request, Which)
        return answer([running.info() for running in self._instance.processes.all(wanted.session_id)])

    async def process(self, request: Request) -> Response:
        wanted = await arguments(request, Which)
        running = self._instance.processes.get(wanted.id)
        if running is None:
            return failure("process not found", 404)
        return answer(running.info(output=wanted.include_output))
