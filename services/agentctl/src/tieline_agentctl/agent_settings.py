"""Pure: what an agent is started with."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any


class AgentFailure(Exception):
    """An operation on the agent that cannot be done. The text is the wire's `error`."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Settled when the instance is made."""

    instance_id: str
    workspace: PurePath
    port: int  # the instance's own, where the agent finds our MCP endpoint
    default_command: tuple[str, ...]  # used as long as nobody configured another
    env: Mapping[str, str]  # the whole environment
    session_id: str = ""  # the backend's, for permission events
    task_id: str = ""
    auto_approve: bool = False
    requires_process_kill: bool = False
    mcp_servers: tuple[Mapping[str, Any], ...] = ()
    async_idle: float = 5.0  # silence that ends output outside of any prompt

    @property
    def stop_grace(self) -> float:
        """Seconds that the agent gets after its stdin was closed."""
        return 0.25 if self.requires_process_kill else 5.0


def command_line(command: str, agent_args: list[str] | None) -> tuple[str, ...]:
    """The argv of a configuration: the exact one if given, else the line split at blanks, without quoting."""
    if not command.strip():
        raise AgentFailure("command is required")
    argv = command.split() if agent_args is None else agent_args
    if not argv:
        raise AgentFailure("agent_args must not be empty")
    if not argv[0].strip() or argv[0].startswith("-"):
        raise AgentFailure(f"not an executable: {argv[0]!r}")
    if any("\0" in part for part in argv):
        raise AgentFailure("an argument contains a NUL character")
    return tuple(argv)
