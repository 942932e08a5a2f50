"""What the streams of an instance are given: where it is, and who hears what they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tieline_streams.reverse_requests import McpHandler
from tieline_streams.supervisor import Tell
from tieline_streams.workspace_callbacks import UpdateHandler, WorkspaceStreamCallbacks


@dataclass(frozen=True, slots=True)
class Execution:
    """An instance, and who listens to it."""

    url: str
    headers: dict[str, str]
    handler: UpdateHandler
    mcp_handler: McpHandler
    on_disconnect: Callable[[str], None]
    on_connect: Callable[[], None]
    on_invalid: Callable[[str, bytes], None]
    callbacks: WorkspaceStreamCallbacks
    tell: Tell
    on_workspace: Callable[[], None] = lambda: None
    may_act: Callable[[], bool] = lambda: True
