"""What a user asks of the workspace: the shell, files, git, processes, VS Code."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from tieline_protocol import agentctl_http
from tieline_protocol.cursor import Cursor
from tieline_protocol.errors import Unavailable

from tieline_streams import workspace
from tieline_streams.payloads import Input, Resize, read
from tieline_streams.session import Session


class WorkspaceCommands:
    """Of one session. `budget` is how many seconds whoever asked will wait."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._limits = session.limits

    def typed(self, action: str, payload: dict[str, Any]) -> None:
        """Shell input and resize: no waiting in here, or the order would be lost."""
        manager = self._session.manager
        if manager is None:
            raise Unavailable("the session is not connected")
        if action == "shell.input":
            manager.write_shell_input(read(Input, payload).data)
        else:
            size = read(Resize, payload)
            manager.resize_shell(size.cols, size.rows)

    async def buffer(self, payload: dict[str, Any], budget: float) -> dict[str, Any]:
        """The end of the shell's output, and the cursor that continues it to the character."""
        journal = self._session.journal
        data, head = journal.tail.text(), journal.workspace.head()
        await journal.workspace.confirmed(head.last)  # so that the cursor is of a place that the log has
        return {"data": data, "cursor": str(Cursor(head.epoch, head.last, head.at))}

    async def called(self, action: str, payload: dict[str, Any], budget: float) -> bytes:
        """One HTTP request to the daemon; its answer as it came."""
        session = self._session
        instance = session.instance
        if instance is None:
            raise Unavailable("the session is not connected")
        if action.startswith(("workspace.", "git.")):
            workspace.check(payload)
        if action == "process.start":
            place = session.place.path if session.place else PurePosixPath()
            folder = workspace.folder(place, str(payload.get("working_dir") or ""))
            payload = {"kind": "custom", **payload, "working_dir": folder, "session_id": session.id}
        elif action == "process.list":
            payload = {"session_id": session.id}
        if action not in agentctl_http.LONG:
            return await instance.call(action, payload, min(budget, self._limits.http))
        within = min(self._limits.operation_answer, max(budget - 0.2, 0.1))
        limit = self._limits.operation
        return await session.operations.run(action, lambda: instance.call(action, payload, limit), within)
