"""VS Code's routes, with the proxy to it."""

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from tieline_agentctl.instance import Instance
from tieline_agentctl.proxy import forward, forward_websocket
from tieline_agentctl.vscode import Stopping, VsCodeFailed
from tieline_agentctl.web import Args, BadRequest, answer, arguments, failure, route

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Start(Args):
    theme: str = ""


class OpenFile(Args):
    path: str = Field(min_length=1)
    line: int = 0
    col: int = 0


class VsCodeRoutes:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def routes(self) -> list[BaseRoute]:
        base = "/api/v1/vscode"
        return [
            route("POST", f"{base}/start", self.start),
            route("POST", f"{base}/stop", self.stop),
            route("GET", f"{base}/status", self.status),
            route("POST", f"{base}/open-file", self.open_file),
            *(route(method, f"{base}/proxy", self.proxy) for method in METHODS),
            *(route(method, f"{base}/proxy/{{path:path}}", self.proxy) for method in METHODS),
            WebSocketRoute(f"{base}/proxy", self.proxy_websocket),
            WebSocketRoute(f"{base}/proxy/{{path:path}}", self.proxy_websocket),
        ]

    async def start(self, request: Request) -> Response:
        try:
            wanted = await arguments(request, Start)
            self._instance.vscode.start(self._instance.tasks, wanted.theme)
        except BadRequest as exc:
            return answer({"success": False, "error": str(exc)}, 400)
        except Stopping as exc:
            return answer({"success": False, "error": str(exc)}, 409)
        except VsCodeFailed as exc:
            return answer({"success": False, "error": str(exc)}, 500)
        return answer({"success": True, **self._instance.vscode.status()})

    async def stop(self, request: Request) -> Response:
        await self._instance.vscode.stop()
        return answer({"success": True})

    async def status(self, request: Request) -> Response:
        return answer(self._instance.vscode.status())

    async def open_file(self, request: Request) -> Response:
        wanted = await arguments(request, OpenFile)
        try:
            await self._instance.vscode.open_file(self._instance.tasks, wanted.path, wanted.line, wanted.col)
        except (VsCodeFailed, OSError, TimeoutError) as exc:
            return answer({"success": False, "error": str(exc) or "not ready in time"}, 500)
        return answer({"success": True})

    async def proxy(self, request: Request) -> Response:
        if self._instance.vscode.state != "running":
            return failure("vscode is not running", 503)
        return await forward(request, self._instance.vscode.port, f"/{request.path_params.get('path', '')}")

    async def proxy_websocket(self, websocket: WebSocket) -> None:
        if self._instance.vscode.state != "running":
            await websocket.send_denial_response(failure("vscode is not running", 503))
            return
        await forward_websocket(
            websocket, self._instance.vscode.port, f"/{websocket.path_params.get('path', '')}"
        )
