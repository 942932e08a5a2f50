"""Where agentctl instances come from. An executor opens one for a session and closes it again; the record of it is
all that anybody needs to reach it."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Protocol

from tieline_protocol.errors import ProtocolError, Unavailable
from tieline_protocol.messages import InstanceRecord

from tieline_streams import workspace
from tieline_streams.config import (
    DockerExecutor,
    ExecutorSettings,
    LocalExecutor,
    StaticExecutor,
    TunnelExecutor,
)

# A file is in the way, or the name cannot be one.
_ASKED_WRONG = (errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EILSEQ)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a session needs."""

    session: str
    workspace: PurePath  # as the daemon sees it


class Executor(Protocol):
    """One kind of place."""

    async def open(self, wanted: Wanted) -> InstanceRecord:
        """A new instance. Raises TielineError; nothing is left behind then."""

    async def exists(self, record: InstanceRecord, session: str) -> bool | None:
        """Whether an instance is there; None where nobody can say now."""

    async def close(self, record: InstanceRecord | None, session: str) -> None:
        """End an instance, also one that an earlier process opened. Twice is as good as once. Raises TielineError.

        Without a record whoever opened it died before it could write one.
        """

    async def reach(self, record: InstanceRecord, session: str) -> str:
        """The URL at which this process finds an instance, until it leaves. Raises TielineError."""

    async def leave(self, session: str) -> None:
        """This process has nothing more to do with an instance, which stays as it is."""


class Direct:
    """Where everybody reaches an instance at the address in its record."""

    async def reach(self, record: InstanceRecord, session: str) -> str:
        return record.url

    async def leave(self, session: str) -> None:
        pass


def make(settings: ExecutorSettings) -> Executor:
    from tieline_streams.executors.docker import Docker  # all of them import this package for `Wanted`
    from tieline_streams.executors.local import Local
    from tieline_streams.executors.static import Static
    from tieline_streams.executors.tunnel import Tunnel

    match settings:
        case StaticExecutor():
            return Static(settings.control_url, settings.token_file)
        case LocalExecutor():
            return Local(settings)
        case TunnelExecutor():
            return Tunnel(settings)
        case DockerExecutor():
            return Docker(settings)


def place(root: PurePath, asked: str | None, session: str) -> PurePath:
    """The session's folder, made when absent where the root is on this machine, a `Path`. Raises ProtocolError (no
    folder under the root), Unavailable."""
    if not isinstance(root, Path):
        return root / workspace.relative(asked, session)
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
