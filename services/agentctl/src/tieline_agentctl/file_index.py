"""The names of a workspace's files, for the search: kept until something changes, then listed anew when asked."""

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tieline_agentctl import git_parse
from tieline_agentctl.file_events import SKIPPED
from tieline_agentctl.git import GitFailed

if TYPE_CHECKING:
    from tieline_agentctl.workspace import Workspace

MOST = 200_000
YOUNG = 0.5  # seconds for which a list is good even though something changed


class FileIndex:
    def __init__(self, workspace: "Workspace") -> None:
        self._workspace = workspace
        self.known: set[str] = set()  # files that were seen, also those that the search leaves out
        self._listed: set[str] = set()
        self.stale = True
        self._listed_at = float("-inf")
        self._listing = asyncio.Lock()

    def saw(self, path: str, operation: str) -> None:
        if operation == "create":
            self.known.add(path)
            self.stale = True
        elif operation == "remove":
            self.known.discard(path)
            self.stale = True

    async def files(self) -> set[str]:
        """Paths relative to the workspace; those that git ignores are left out."""
        async with self._listing:
            if self.stale and time.monotonic() - self._listed_at > YOUNG:
                self.stale = False
                self._listed = await self._list()
                self.known |= self._listed
                self._listed_at = time.monotonic()
            return self._listed

    async def _list(self) -> set[str]:
        trackers = self._workspace.trackers()
        if not trackers:
            return await asyncio.to_thread(_walk, self._workspace.path)
        found: set[str] = set()
        for tracker in trackers:
            try:
                done = await tracker.repo.read("ls-files", "-z", "--cached", "--others", "--exclude-standard")
            except GitFailed:
                self.stale = True
                continue
            prefix = f"{tracker.repo.name}/" if tracker.repo.name else ""
            found.update(prefix + name for name in git_parse.names(done.out) if not name.endswith("/"))
        return await asyncio.to_thread(_existing, self._workspace.path, found)


def _existing(root: Path, names: set[str]) -> set[str]:
    """Git lists what it tracks, also when it was deleted."""
    return {name for name in names if os.path.lexists(root / name)}


def _walk(root: Path) -> set[str]:
    found: set[str] = set()
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED]
        found.update(os.path.relpath(os.path.join(folder, name), root) for name in files)
        if len(found) > MOST:
            break
    return found
