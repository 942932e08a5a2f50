"""Where agentctl instances come from. An executor opens one for a session and closes it again; the record of it is
all that anybody needs to reach it."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tieline_protocol.errors import ProtocolError, Unavailable
from tieline_protocol.messages import InstanceRecord

from tieline_streams import workspace
from tieline_streams.config import ExecutorSettings, StaticExecutor

# A file is in the way, or the name cannot be one.
_ASKED_WRONG = (errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EILSEQ)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a session needs."""

    session: str
    workspace: Path


class Executor(Protocol):
    """One kind of place."""

    async def open(self, wanted: Wanted) -> InstanceRecord:
        """A new instance. Raises TielineError; nothing is left behind then."""

    async def exists(self, record: InstanceRecord, session: str) -> bool | None:
        """Whether an instance is there; None where nobody can say now."""

    async def close(self, record: InstanceRecord, session: str) -> None:
        """End an instance, also one that an earlier process opened. Twice is as good as once. Raises TielineError."""


def make(settings: ExecutorSettings) -> Executor:
    from tieline_streams.executors.local import Local  # both import this package for `Wanted`
    from tieline_streams.executors.static import Static

    return Static(settings) if isinstance(settings, StaticExecutor) else Local(settings)


def place(root: Path, asked: str | None, session: str) -> Path:
    """The session's folder, made when absent. Raises ProtocolError (no folder under the root), Unavailable."""
    try:
        base = root.resolve()
        path = (base / workspace.relative(asked, session)).resolve()
        if not path.is_relative_to(base) or path == base:
            raise ProtocolError("workspace: a path under the executor's root is required")
        path.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        kind = ProtocolError if exc.errno in _ASKED_WRONG else Unavailable
        raise kind(f"workspace: {exc.strerror}") from exc
    return path
