"""Every route of an instance's port, behind the gate."""

from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from tieline_agentctl.auth import Auth
from tieline_agentctl.gate import Gate
from tieline_agentctl.instance import Instance
from tieline_agentctl.mcp_endpoint import McpEndpoint
from tieline_agentctl.routes_agent import AgentRoutes
from tieline_agentctl.routes_files import FileRoutes
from tieline_agentctl.routes_git import GitRoutes
from tieline_agentctl.routes_shell import ShellRoutes
from tieline_agentctl.routes_vscode import VsCodeRoutes
from tieline_agentctl.routes_workspace import WorkspaceRoutes
from tieline_agentctl.web import router
from tieline_agentctl.workspace_stream import WorkspaceStream

EXEMPT = frozenset({"/health", "/api/v1/health", "/sse", "/message", "/mcp"})


def instance_app(instance: Instance, auth: Auth) -> ASGIApp:
    async def agent_stream(websocket: WebSocket) -> None:
        await instance.agent.serve_stream(websocket)

    routes = router(
        [
            *AgentRoutes(instance).routes(),
            *ShellRoutes(instance).routes(),
            *WorkspaceRoutes(instance).routes(),
            *FileRoutes(instance).routes(),
            *GitRoutes(instance).routes(),
            *VsCodeRoutes(instance).routes(),
            *McpEndpoint(instance).routes(),
            WebSocketRoute("/api/v1/agent/stream", agent_stream),
            WebSocketRoute("/api/v1/workspace/stream", WorkspaceStream(instance)),
        ]
    )
    return Gate(routes, auth, EXEMPT, instance.id, instance.activity)
