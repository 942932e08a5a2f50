"""Pure: who is told about which frame of the workspace socket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tieline_protocol.agentctl import Frame

UpdateHandler = Callable[[list[Frame]], None]
"""Frames that came together, in order."""


@dataclass(frozen=True, slots=True)
class WorkspaceStreamCallbacks:
    """What to call for frames of the workspace socket. `on_frames` gets every one of them, as it came."""

    on_frames: UpdateHandler | None = None
    on_connected: Callable[[], None] | None = None
    on_shell_output: Callable[[str], None] | None = None
    on_shell_exit: Callable[[int], None] | None = None
    on_process_output: Callable[[dict[str, Any]], None] | None = None
    on_process_status: Callable[[dict[str, Any]], None] | None = None
    on_git_status: Callable[[dict[str, Any]], None] | None = None
    on_git_commit: Callable[[dict[str, Any]], None] | None = None
    on_git_reset: Callable[[dict[str, Any]], None] | None = None
    on_branch_switch: Callable[[dict[str, Any]], None] | None = None
    on_file_change: Callable[[dict[str, Any]], None] | None = None
    on_error: Callable[[str], None] | None = None
    on_invalid: Callable[[bytes], None] | None = None

    def dispatch(self, frames: list[Frame]) -> None:
        if self.on_frames is not None:
            self.on_frames(frames)
        for frame in frames:
            callback = getattr(self, f"on_{frame.type}", None) if frame.type in _DETAIL else None
            if callback is not None:
                callback(*_DETAIL[frame.type](frame.value))


def _object(name: str) -> Callable[[dict[str, Any]], tuple[dict[str, Any]]]:
    def detail(value: dict[str, Any]) -> tuple[dict[str, Any]]:
        found = value.get(name)
        return (found if isinstance(found, dict) else {},)

    return detail


_DETAIL: dict[str, Callable[[dict[str, Any]], tuple[Any, ...]]] = {
    "connected": lambda _: (),
    "shell_output": lambda value: (value.get("data") or "",),
    "shell_exit": lambda value: (value.get("code") or 0,),  # 0 is left out on the wire
    "error": lambda value: (value.get("error") or "",),
    **{
        name: _object(name)
        for name in (
            "process_output",
            "process_status",
            "git_status",
            "git_commit",
            "git_reset",
            "branch_switch",
            "file_change",
        )
    },
}
