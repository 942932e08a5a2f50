"""Sessions of executors whose daemons are real: the file that names them, the service as a process, what users try."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tieline_protocol.errors import TielineError
from tieline_streams.config import Executors

from tests.support.process import Process
from tests.support.streams import Frontend

# Whatever the start-up files of whoever runs this do is none of its business.
SHELL = {"AGENTCTL_SHELL_COMMAND": "/bin/sh"}


def known(kind: str, **executor: Any) -> Executors:
    """One executor of a kind, and the example agent: the first of each is the default."""
    agent = {"command": [sys.executable, "-m", "tieline_agentctl.example_agent"]}
    return Executors.model_validate(
        {"executors": {kind: {"kind": kind, **executor}}, "agents": {"example": agent}}
    )


def process(nats_url: str, executors: Executors, directory: Path) -> Process:
    """The service as a process that may be killed: three seconds later it counts as dead."""
    file = directory / "executors.json"
    file.write_text(executors.model_dump_json())
    options = {
        "--executors-file": str(file),
        "--nats-url": nats_url,
        "--log-format": "text",
        "--lease-seconds": "3",
    }
    args = [part for option in options.items() for part in option]
    return Process("tieline_streams", directory / "run", args, timeout=15)


async def asked(user: Frontend) -> dict[str, Any]:
    """Prompt for something that waits for a permission, and the answer that allows it."""
    await user.command("agent.prompt", {"text": "say hello\nask May I"})
    request = await user.until("agent", "permission_request", timeout=15)
    return {
        "pending_id": request["pending_id"],
        "request_id": request["request_id"],
        "option_id": "allow",
    }


async def attempt(
    user: Frontend, action: str, payload: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any] | None:
    """What a command answers; None where it is refused or nobody is there."""
    try:
        return await user.command(action, payload, **more)
    except TielineError:
        return None


async def decided(user: Frontend, answer: dict[str, Any]) -> bool:
    """Whether the answer to a permission was taken."""
    return await attempt(user, "agent.permissions.respond", answer) == {"status": "resolved"}


async def file_made(user: Frontend) -> bool:
    """Whether a file could be made in the workspace."""
    told = await attempt(user, "workspace.file-create", {"path": "a.txt"})
    return told is not None and told["success"] is True


async def closed(user: Frontend) -> bool:
    """Whether the session could be closed."""
    return await attempt(user, "session.close", budget_ms=20_000) is not None
