"""Where a path of a request leads. Reading follows the wire; writing never leaves the workspace, by whatever links.

Plain functions that look at the disk: callers run them in a thread.
"""

import os
import re
from pathlib import Path

_SELECTOR = re.compile(r":\d+(?:-\d+)?(?::\d+)?$")


class FileFailed(Exception):
    """The text is the wire's `error`; `size` where the wire wants it told."""

    def __init__(self, text: str, size: int = 0) -> None:
        super().__init__(text)
        self.size = size


def writable(root: Path, path: str) -> Path:
    """The place of a path that may be written: inside the workspace after every link on the way is followed."""
    if not path or "\0" in path:
        raise FileFailed("path is required" if not path else "invalid path")
    top = root.resolve()
    target = Path(os.path.normpath(top / path))
    if not target.is_relative_to(top):
        raise FileFailed(f"path outside the workspace: {path}")
    if target == top:
        raise FileFailed("the workspace root cannot be changed")
    if not target.parent.resolve().is_relative_to(top):
        raise FileFailed(f"path outside the workspace: {path}")
    if ".git" in target.relative_to(top).parts or ".git" in target.parent.resolve().relative_to(top).parts:
        raise FileFailed(f"the repository's own data cannot be changed: {path}")
    return target


def through_links(root: Path, target: Path) -> Path:
    """For writing contents: the file behind a link, if that is inside the workspace too."""
    real = target.resolve()
    if not real.is_relative_to(root.resolve()):
        raise FileFailed(f"the link leads outside the workspace: {target.name}")
    return real


def readable(root: Path, path: str) -> tuple[Path, str]:
    """The place of a path that may be read, and its name when it is not the one that was asked for."""
    if not path or "\0" in path:
        raise FileFailed("path is required" if not path else "invalid path")
    wanted = os.path.expanduser(path) if path.startswith("~/") else path
    for name in (wanted, _SELECTOR.sub("", wanted)):
        target = Path(os.path.normpath(root / name))
        if not os.path.isabs(wanted):
            top = root.resolve()
            inside = target.is_relative_to(Path(os.path.normpath(root)))
            if not inside or not target.resolve().is_relative_to(top):
                raise FileFailed(f"path outside the workspace: {path}")
        if target.exists():
            return target, name if name != path else ""
    raise FileFailed(f"file not found: {path}")


def plain_name(path: str) -> str:
    """As the watcher will report it."""
    return os.path.normpath(path).lstrip("/")
