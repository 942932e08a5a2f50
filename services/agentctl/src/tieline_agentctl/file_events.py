"""Pure: what a batch of raw file system reports says about each path, and which paths are nobody's business."""

from collections.abc import Callable, Collection, Iterable
from pathlib import PurePosixPath

SKIPPED = frozenset({".git", "node_modules", ".next", "dist", "build"})
UNWATCHED = SKIPPED | {"__pycache__"}
MOST = 200  # more changes at once than this are told as one `refresh`
_GIT_STATE = ("HEAD", "index", "packed-refs", "ORIG_HEAD", "MERGE_HEAD")


def operations(
    reports: Iterable[tuple[str, str]], exists: Callable[[str], bool], known: Collection[str]
) -> list[tuple[str, str]]:
    """Path and operation for each path. A known file that was replaced is a `write`: so do editors save."""
    kinds: dict[str, set[str]] = {}
    for kind, path in reports:
        kinds.setdefault(path, set()).add(kind)
    found = []
    for path, said in sorted(kinds.items()):
        if not exists(path):
            if said != {"added"} and (path in known or "added" not in said):
                found.append((path, "remove"))
        elif "added" in said and path not in known and "deleted" not in said:
            found.append((path, "create"))
        else:
            found.append((path, "write"))
    return found


def watched(path: str) -> bool:
    return not UNWATCHED.intersection(PurePosixPath(path).parts)


def moves_git(path: str) -> bool:
    """Whether a path inside a `.git` directory says that a commit, a branch or the index changed."""
    parts = PurePosixPath(path).parts
    if ".git" not in parts or path.endswith(".lock"):
        return False
    inside = parts[parts.index(".git") + 1 :]
    return bool(inside) and (inside[0] == "refs" or inside[0] in _GIT_STATE)
