"""The workspace of an instance: its repositories, who follows them, and the files that change. It tells the hub."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import structlog

from tieline_agentctl import clock, workspace_frames
from tieline_agentctl.file_events import MOST, SKIPPED, moves_git, operations, watched
from tieline_agentctl.file_index import FileIndex
from tieline_agentctl.git import Repo
from tieline_agentctl.git_parse import safe_ref
from tieline_agentctl.hub import Hub
from tieline_agentctl.scope import Scope
from tieline_agentctl.tracker import Tracker, refresh_quietly
from tieline_agentctl.wall import now, now_ms
from tieline_agentctl.watcher import Report, Watcher
from tieline_agentctl.web import BadRequest

log = structlog.get_logger()

FAST, SLOW = 3.0, 30.0
GROWS_SLOW = 60.0  # fast polling without anybody asking for it ends after this
SETTLE = 0.1
FIRST_STATUS = 10.0
MODES = ("fast", "slow", "paused")


class Workspace:
    def __init__(
        self,
        path: Path,
        hub: Hub,
        env: Mapping[str, str],
        base_branches: Mapping[str, str],
        source_roots: list[str],
    ) -> None:
        self.path = path
        self.source_roots = [Path(root) for root in source_roots]
        self._hub = hub
        # Git must not find a repository above the workspace.
        self._env = {**env, "GIT_CEILING_DIRECTORIES": str(path.resolve().parent)}
        self._bases = dict(base_branches)
        self._trackers: dict[str, Tracker] = {}
        self._repos: dict[str, Repo] = {}
        self.index = FileIndex(self)
        self.mode = "fast"
        self._mode_at = time.monotonic()
        self._wake = asyncio.Event()
        self._dirty: set[str] = set()
        self._announced: dict[tuple[str, str], float] = {}
        self._watcher: Watcher | None = None
        self._tasks = Scope()
        self._stack = AsyncExitStack()
        self._live = False

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.pause()

    async def _begin(self) -> None:
        self._live = True
        self.discover()
        self._watcher = await self._stack.enter_async_context(Watcher(self.path, self._heard, self._missed))
        self._tasks.spawn(self._poll(), "git poller")

    async def pause(self) -> None:
        """Follows nothing until resumed; questions are still answered."""
        if self._live:
            self._live = False
            await self._tasks.close()
            await self._stack.aclose()
            self._watcher = None

    async def resume(self) -> None:
        if not self._live:
            await self._begin()

    # --- repositories

    def discover(self) -> None:
        """The workspace itself, and each directory in it that is a repository of its own."""
        found = {"": self.path} if (self.path / ".git").exists() else {}
        try:
            children = sorted(entry for entry in self.path.iterdir() if entry.name not in SKIPPED)
        except OSError:
            children = []
        for child in children:
            if not child.is_symlink() and (child / ".git").exists():
                found[child.name] = child
        for name in self._trackers.keys() - found.keys():
            del self._trackers[name]
        for name, path in found.items():
            if name not in self._trackers:
                self._trackers[name] = Tracker(self._repo(name, path), self._hub, self.base_of(name))

    def base_of(self, name: str) -> str:
        return self._bases.get(name, "")

    def set_bases(self, bases: Mapping[str, str]) -> None:
        """Names that no branch can have are dropped."""
        self._bases = {repo: branch for repo, branch in bases.items() if safe_ref(branch)}
        for name, tracker in self._trackers.items():
            tracker.reader.base_branch = self.base_of(name)
        self._all_dirty()

    def _repo(self, name: str, path: Path) -> Repo:
        if name not in self._repos or self._repos[name].path != path:
            self._repos[name] = Repo(path, name, self._env)
        return self._repos[name]

    def repo(self, name: str = "") -> Repo:
        return self.tracker(name).repo

    def tracker(self, name: str = "") -> Tracker:
        """By the name of its directory; empty for the workspace itself. BadRequest for anything else."""
        if name not in self._trackers:
            self.discover()
        if name in self._trackers:
            return self._trackers[name]
        if name == "":
            return Tracker(self._repo("", self.path), self._hub, self.base_of(""))
        raise BadRequest(f"unknown repository: {name}")

    def trackers(self) -> list[Tracker]:
        return list(self._trackers.values())

    def folder(self, repo: str) -> Path:
        """Where the paths of a file request start."""
        return self.tracker(repo).repo.path if repo else self.path

    # --- what clients push

    def set_mode(self, mode: str) -> None:
        self.mode = mode
        self._mode_at = time.monotonic()
        if mode == "fast":
            self._all_dirty()

    def rescan(self) -> None:
        self.discover()
        self.index.stale = True
        self._all_dirty()

    async def rebind(self, path: Path, roots: list[str] | None) -> None:
        """From here on the workspace is somewhere else."""
        await self.pause()
        self.path = path
        self._env["GIT_CEILING_DIRECTORIES"] = str(path.resolve().parent)
        self._trackers.clear()
        self._repos.clear()
        if roots is not None:
            self.source_roots = [Path(root) for root in roots]
        self.index = FileIndex(self)
        await self._begin()

    # --- what is told

    async def first_frames(self) -> list[tuple[str, str]]:
        """A fresh status of each repository, for a reader that has just come."""
        if self._watcher is not None:
            try:
                async with asyncio.timeout(2.0):
                    await self._watcher.ready.wait()
            except TimeoutError:
                log.warning("file watching has not begun yet", workspace=str(self.path))
        frames = []
        for tracker in self.trackers():
            try:
                async with asyncio.timeout(FIRST_STATUS):
                    if await refresh_quietly(tracker) and tracker.body is not None:
                        frames.append((tracker.frame(tracker.body), tracker.key))
            except TimeoutError:
                log.warning("the first git status took too long", repository=tracker.repo.name)
        return frames

    def changed(self, path: str, operation: str, expect: str = "") -> None:
        """A file operation of ours. The kernel will report it too: that report is expected, and not told again."""
        self._announced[(path, expect or operation)] = time.monotonic() + 2.0
        self._tell_file(path, operation)
        self._touched(path)

    def _heard(self, reports: list[Report]) -> None:
        if any(moves_git(path) for _, path in reports):
            self._all_dirty()
        seen = [(kind, path) for kind, path in reports if watched(path)]
        if not seen or self.mode == "paused":
            return
        if len({path for _, path in seen}) > MOST:
            self._missed()
            return
        root = self.path
        told = operations(
            seen, lambda path: (root / path).exists() or (root / path).is_symlink(), self.index.known
        )
        due = time.monotonic()
        self._announced = {key: until for key, until in self._announced.items() if until > due}
        for path, operation in told:
            self.index.saw(path, operation)
            if self._announced.pop((path, operation), None) is None:
                self._tell_file(path, operation)
            self._touched(path)

    def _missed(self) -> None:
        """Something changed, and too much of it or nobody can say what."""
        if self.mode == "paused":
            return
        self.index.stale = True
        self._tell_file("", "refresh")
        self._all_dirty()

    def _tell_file(self, path: str, operation: str) -> None:
        body: dict[str, str] = {"timestamp": clock.nano(now())}
        first, slash, rest = path.partition("/")
        if slash and first in self._trackers:
            body["repository_name"] = first
            path = rest
        body |= {"path": path, "operation": operation}
        key = "file_change refresh" if operation == "refresh" else ""
        self._hub.fact(workspace_frames.frame("file_change", now_ms(), file_change=body), key)

    # --- polling

    def _touched(self, path: str) -> None:
        first = path.partition("/")[0]
        self._dirty.add(first if first in self._trackers else "")
        self._wake.set()

    def _all_dirty(self) -> None:
        self._dirty.update(self._trackers)
        self._wake.set()

    def _interval(self) -> float:
        """With a watcher that hears of every commit, polling is only a safety net."""
        if self.mode == "fast" and time.monotonic() - self._mode_at > GROWS_SLOW:
            self.mode = "slow"
        blind = self._watcher is None or self._watcher.failed
        outside = any(not (tracker.repo.path / ".git").is_dir() for tracker in self.trackers())
        return FAST if self.mode == "fast" and (blind or outside) else SLOW

    async def _poll(self) -> None:
        self._all_dirty()
        await self.index.files()
        while True:
            try:
                async with asyncio.timeout(self._interval()):
                    await self._wake.wait()
            except TimeoutError:
                self._all_dirty()
            self._wake.clear()
            if self.mode == "paused":
                continue
            await asyncio.sleep(SETTLE)
            dirty, self._dirty = self._dirty, set()
            began = time.monotonic()
            for tracker in self.trackers():
                # An operation tells the status itself when it is done; half of it is nobody's business.
                if tracker.repo.name in dirty and not tracker.repo.busy:
                    await refresh_quietly(tracker)
            # In a big repository a status takes long: spend no more than a quarter of the time on it.
            await asyncio.sleep(3 * (time.monotonic() - began))
