"""Hears from the kernel which files change. One thread for one workspace; batches arrive in the event loop."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import structlog
import watchfiles

log = structlog.get_logger()

STEP = 50  # ms without a change that end a batch
LONGEST = 400  # ms after which a batch ends in any case
TICK = 100  # ms; the first one says that watching has begun
PAUSE = 0.2  # s between a watch that ended and the next
_UNNAMED = "Unable to decode path"
Report = tuple[str, str]


class Watcher:
    """Calls `heard` with (added|modified|deleted, path relative to the root); `missed` where it cannot say which."""

    def __init__(self, root: Path, heard: Callable[[list[Report]], None], missed: Callable[[], None]) -> None:
        self._root = root.resolve()
        self._heard = heard
        self._missed = missed
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name=f"watch {root}", daemon=True)
        self.ready = asyncio.Event()
        self.failed = False

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join, 5)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except (OSError, RuntimeError) as exc:
                if _UNNAMED in str(exc):
                    # A file whose name is no text ends this watch, and nothing but this watch.
                    self._tell(self._missed)
                    self._stop.wait(PAUSE)
                    continue
                # Too many files for the kernel's limit, or the workspace is gone: polling goes on.
                log.warning("files are not watched", root=str(self._root), error=str(exc))
            break
        if not self._stop.is_set():
            self.failed = True
            self._tell(self.ready.set)

    def _follow(self) -> None:
        batches = watchfiles.watch(
            self._root,
            watch_filter=None,
            debounce=LONGEST,
            step=STEP,
            stop_event=self._stop,
            rust_timeout=TICK,
            yield_on_timeout=True,
            raise_interrupt=False,
            ignore_permission_denied=True,
        )
        prefix = f"{self._root}/"
        began = False
        for batch in batches:
            if not began:
                began = True
                self._tell(self.ready.set)
            reports = [
                (change.name, path.removeprefix(prefix)) for change, path in batch if path.startswith(prefix)
            ]
            if reports:
                self._tell(self._heard, reports)

    def _tell(self, call: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            self._stop.set()  # the loop is closed: nobody is there to be told
