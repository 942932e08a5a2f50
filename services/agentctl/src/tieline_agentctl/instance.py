"""One instance: an agent, a shell, processes and trackers on one workspace, behind one port. It owns all of them.

Everything lives inside `running()`; leaving it ends every process and socket of the instance.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import structlog
from pydantic import Field

from tieline_agentctl import clock
from tieline_agentctl.agent import Agent, AgentSettings
from tieline_agentctl.config import Config, truth
from tieline_agentctl.epoch import Epochs
from tieline_agentctl.gate import Activity
from tieline_agentctl.hub import Hub
from tieline_agentctl.processes import Processes
from tieline_agentctl.scope import Scope
from tieline_agentctl.shell import Shell, ShellFailed
from tieline_agentctl.vscode import VsCode
from tieline_agentctl.wall import now
from tieline_agentctl.web import Args
from tieline_agentctl.workspace import Workspace

log = structlog.get_logger()


class Create(Args):
    """Body of `POST /api/v1/instances`; what we have no use for is ignored."""

    id: str = ""
    workspace_path: str = ""
    agent_command: str = ""
    protocol: str = ""
    agent_type: str = ""
    workspace_flag: str = ""
    env: dict[str, str] = Field(default_factory=dict)
    auto_approve_permissions: bool | None = None
    mcp_servers: list[dict[str, Any]] = Field(default_factory=list)
    disable_ask_question: bool = False
    mcp_mode: str = ""
    mcp_profile: dict[str, Any] = Field(default_factory=dict)
    session_id: str = ""
    task_id: str = ""
    requires_process_kill: bool = False
    strip_env: list[str] = Field(default_factory=list)
    base_branches: dict[str, str] = Field(default_factory=dict)
    workspace_source_roots: list[str] = Field(default_factory=list)


def child_env(daemon: Mapping[str, str], strip: list[str], extra: Mapping[str, str]) -> dict[str, str]:
    """What children see: never our own variables, the nonce least of all."""
    kept = {
        name: value
        for name, value in daemon.items()
        if not name.startswith(("AGENTCTL_", "npm_", "KANDEV_INTERNAL_", "KANDEV_PARENT_PIPE"))
        and name not in strip
    }
    return {**kept, **{name: value for name, value in extra.items() if not name.startswith("AGENTCTL_")}}


def ceiling(path: Path) -> dict[str, str]:
    """Git of whoever works here must not take a repository above the workspace for the workspace's own."""
    return {"GIT_CEILING_DIRECTORIES": str(path.resolve().parent)}


class Instance:
    def __init__(self, create: Create, config: Config, port: int) -> None:
        self.id = create.id
        self.port = port
        self.create = create
        self.config = config
        self.created_at = clock.nano(now())
        self.path = Path(create.workspace_path)
        self.stopping = False
        self.activity = Activity()
        self.epochs = Epochs()
        self.env = {
            **child_env(os.environ, create.strip_env, create.env),
            **ceiling(self.path),
        }
        command = create.agent_command.split() or list(config.agent_command)
        if create.workspace_flag and create.workspace_flag not in command:
            command += [create.workspace_flag, create.workspace_path]
        auto = create.auto_approve_permissions
        if auto is None:
            auto = truth(create.env.get("AGENTCTL_AUTO_APPROVE_PERMISSIONS", ""), config.auto_approve)
        self.agent = Agent(
            AgentSettings(
                instance_id=create.id,
                workspace=self.path,
                port=port,
                default_command=tuple(command),
                env=self.env,
                session_id=create.session_id,
                task_id=create.task_id,
                auto_approve=auto,
                requires_process_kill=create.requires_process_kill,
                mcp_servers=tuple(create.mcp_servers),
            )
        )
        self.hub = Hub()
        self.shell = Shell(
            self.hub, self.path, self.env, create.env.get("AGENTCTL_SHELL_COMMAND") or config.shell_command
        )
        self.processes = Processes(self.hub, self.env, config.process_buffer)
        self.workspace = Workspace(
            self.path, self.hub, self.env, create.base_branches, create.workspace_source_roots
        )
        self.vscode = VsCode(config.vscode_command, self.path, self.env)
        self.tasks = Scope()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.agent, self.workspace:
            try:
                yield
            finally:
                self.stopping = True
                await asyncio.shield(self._stop_children())
                await self.tasks.close()
                self.hub.close()

    async def start(self) -> str:
        """Raises AgentFailure; the shell is a convenience and its failure only a log line."""
        command = await self.agent.start()
        await self.workspace.resume()
        if self.config.shell_enabled:
            try:
                self.shell.start(self.tasks)
            except ShellFailed as exc:
                log.warning("no shell", instance=self.id, error=str(exc))
        return command

    async def move_to(self, path: Path, source_roots: list[str] | None) -> None:
        """The workspace is somewhere else from now on; the next shell starts there."""
        self.path = self.shell.cwd = path
        for env in (self.env, self.shell.env, self.processes.env):
            env.update(ceiling(path))
        await self.workspace.rebind(path, source_roots)

    async def stop(self) -> None:
        """The agent and everything beside it; the port goes on answering."""
        try:
            await self.agent.stop()
        finally:
            await self.workspace.pause()
            await self._stop_children()

    async def _stop_children(self) -> None:
        await asyncio.gather(self.shell.stop(), self.processes.stop_all(), self.vscode.stop())

    def describe(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "id": self.id,
            "port": self.port,
            "status": "stopping" if self.stopping else "running",
            "workspace_path": self.create.workspace_path,
            "agent_command": self.agent.command,
        }
        if self.create.env:
            body["env"] = dict(self.create.env)
        return {**body, "created_at": self.created_at}
