"""Pure: which folder under an executor's root a session works in."""

from __future__ import annotations

from pathlib import PurePosixPath

from tieline_protocol.errors import ProtocolError

_MOST = 1_024


def relative(workspace: str | None, session: str) -> PurePosixPath:
    """The path that a user asked for, or one named after the session. Raises ProtocolError."""
    if workspace is None:
        return PurePosixPath(session)
    if not workspace or len(workspace) > _MOST or "\x00" in workspace:
        raise ProtocolError("workspace: not a path")
    path = PurePosixPath(workspace)
    if path.is_absolute() or ".." in path.parts:
        raise ProtocolError("workspace: a path under the executor's root is required")
    try:
        workspace.encode()
    except UnicodeEncodeError as exc:
        raise ProtocolError("workspace: not valid Unicode") from exc
    return path
