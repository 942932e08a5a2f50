"""Pure: which folder under an executor's root a session works in, and which paths in it users may name.

The daemon of the wire reads absolute paths and a leading `~` too; a user's paths never leave the workspace.
"""

from __future__ import annotations

from pathlib import PurePath, PurePosixPath
from typing import Any

from tieline_protocol.errors import ProtocolError

_MOST = 1_024
_PATHS = ("path", "old_path", "new_path", "repo")


def relative(workspace: str | None, session: str) -> PurePosixPath:
    """The path that a user asked for, or one named after the session. Raises ProtocolError."""
    if workspace is None:
        return PurePosixPath(session)
    if not workspace or len(workspace) > _MOST or "\x00" in workspace:
        raise ProtocolError("workspace: not a path")
    path = PurePosixPath(workspace)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ProtocolError("workspace: a path under the executor's root is required")
    try:
        workspace.encode()
    except UnicodeEncodeError as exc:
        raise ProtocolError("workspace: not valid Unicode") from exc
    return path


def check(payload: dict[str, Any]) -> None:
    """The paths in what a user asks of files or git. Raises ProtocolError for one that leads out of the workspace."""
    for name in _PATHS:
        value = payload.get(name)
        if not isinstance(value, str) or not value:
            continue
        parts = value.split("/")
        if value.startswith("/") or ".." in parts or parts[0] == "~" or "\x00" in value:
            raise ProtocolError(f"{name}: a path within the workspace is required")


def folder(root: PurePath, wanted: str) -> str:
    """The absolute folder that a process of the user's starts in; the workspace's root by default, and an absolute
    path within it, as processes tell theirs, is one too. Raises ProtocolError for one that leads out of it."""
    path = root / wanted
    if ".." in PurePosixPath(wanted).parts or "\x00" in wanted or not path.is_relative_to(root):
        raise ProtocolError("working_dir: a path within the workspace is required")
    return str(path)
