"""The files of a workspace: read, listed, searched and changed. Which paths may be used is in paths.py.

Plain functions that touch the disk: callers run them in a thread.
"""

import base64
import contextlib
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tieline_agentctl import patch, searching
from tieline_agentctl.file_events import SKIPPED
from tieline_agentctl.paths import FileFailed, readable, through_links, writable

MOST = 10 * 1024 * 1024
MOST_SEARCHED = 2 * 1024 * 1024
MOST_NODES = 50_000


class Conflict(FileFailed):
    """The file is not what the diff was made against."""


def content(root: Path, path: str) -> dict[str, Any]:
    target, resolved = readable(root, path)
    try:
        # Opened without waiting: a named pipe must not hold a thread for ever.
        handle = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        raise FileFailed(f"cannot read {path}: {exc.strerror}") from exc
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode):
        os.close(handle)
        kind = "path is a directory" if stat.S_ISDIR(facts.st_mode) else "not a regular file"
        raise FileFailed(f"{kind}: {path}")
    with os.fdopen(handle, "rb") as file:
        data = file.read(MOST + 1) if facts.st_size <= MOST else b""
    if facts.st_size > MOST or len(data) > MOST:
        raise FileFailed("file too large (max 10MB)", max(facts.st_size, len(data)))
    body = text_or_binary(data)
    return {**body, "resolved_path": resolved} if resolved else body


def text_or_binary(data: bytes) -> dict[str, Any]:
    if len(data) > MOST:
        raise FileFailed("file too large (max 10MB)", len(data))
    try:
        return {"content": data.decode(), "size": len(data)}
    except UnicodeDecodeError:
        return {"content": base64.b64encode(data).decode(), "size": len(data), "is_binary": True}


def tree(root: Path, path: str, depth: int) -> dict[str, Any]:
    """Depth 0 has no end. Links are shown, not followed."""
    top = root.resolve()
    target = Path(os.path.normpath(top / path)) if path else top
    if not target.is_relative_to(top) or not target.resolve().is_relative_to(top):
        raise FileFailed(f"path outside the workspace: {path}")
    if not target.exists():
        raise FileFailed(f"path not found: {path}")
    name = target.name if path else root.name
    if not target.is_dir():
        return {"name": name, "path": path, "is_dir": False, "size": target.stat().st_size}
    node: dict[str, Any] = {"name": name, "path": path, "is_dir": True}
    left = [MOST_NODES]
    children = _children(
        target, "" if target == top else target.relative_to(top).as_posix(), depth or 1 << 30, left
    )
    return {**node, "children": children} if children else node


def _children(folder: Path, prefix: str, depth: int, left: list[int]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    try:
        entries = sorted(
            os.scandir(folder), key=lambda entry: (not entry.is_dir(follow_symlinks=False), entry.name)
        )
    except OSError:
        return found
    for entry in entries:
        if entry.name in SKIPPED or left[0] <= 0:
            continue
        left[0] -= 1
        path = f"{prefix}/{entry.name}" if prefix else entry.name
        node: dict[str, Any] = {
            "name": entry.name,
            "path": path,
            "is_dir": entry.is_dir(follow_symlinks=False),
        }
        if node["is_dir"]:
            children = _children(Path(entry.path), path, depth - 1, left) if depth > 1 else []
            if children:
                node["children"] = children
        else:
            with contextlib.suppress(OSError):
                if size := entry.stat(follow_symlinks=False).st_size:
                    node["size"] = size
        if entry.is_symlink():
            node["is_symlink"] = True
        found.append(node)
    return found


def create(root: Path, path: str) -> None:
    target = writable(root, path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # O_EXCL does not follow a link that stands at the name.
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
    except FileExistsError as exc:
        raise FileFailed(f"file already exists: {path}") from exc
    except OSError as exc:
        raise FileFailed(f"cannot create {path}: {exc.strerror}") from exc


def rename(root: Path, old: str, new: str) -> None:
    source, target = writable(root, old), writable(root, new)
    if not os.path.lexists(source):
        raise FileFailed(f"file not found: {old}")
    if os.path.lexists(target) and not (source.exists() and target.exists() and source.samefile(target)):
        raise FileFailed(f"file already exists: {new}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
    except OSError as exc:
        raise FileFailed(f"cannot rename {old}: {exc.strerror}") from exc


def delete(root: Path, path: str) -> None:
    target = writable(root, path)
    try:
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink()
    except FileNotFoundError as exc:
        raise FileFailed(f"file not found: {path}") from exc
    except OSError as exc:
        raise FileFailed(f"cannot delete {path}: {exc.strerror}") from exc


def write(root: Path, path: str, diff: str, original_hash: str, desired: str | None) -> tuple[str, str]:
    """The new hash, and whether the diff was applied or the file overwritten."""
    target = through_links(root, writable(root, path))
    try:
        before = target.read_bytes()
    except FileNotFoundError:
        before = b""
    except OSError as exc:
        raise FileFailed(f"cannot read {path}: {exc.strerror}") from exc
    resolution = "applied"
    try:
        if original_hash and hashlib.sha256(before).hexdigest() != original_hash.lower():
            raise Conflict("the file has changed since the diff was made")
        after = patch.apply(before, diff.encode())
    except (Conflict, patch.PatchFailed) as exc:
        if desired is None:
            raise Conflict(str(exc)) from exc
        after, resolution = desired.encode(), "overwritten"
    try:
        _replace(target, after)
    except OSError as exc:
        raise FileFailed(f"cannot write {path}: {exc.strerror}") from exc
    return hashlib.sha256(after).hexdigest(), resolution


def _replace(target: Path, data: bytes) -> None:
    """Whole or not at all: whoever reads meanwhile sees the old file or the new one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    part = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            file.write(data)
        if mode is not None:
            part.chmod(mode)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def search_contents(
    root: Path, names: Iterable[str], query: str, limit: int, repo: str
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in sorted(names):
        path = root / name
        try:
            if path.is_symlink() or not path.is_file() or path.stat().st_size > MOST_SEARCHED:
                continue
            text = path.read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            continue
        if query.lower() not in text.lower():
            continue
        for number, line in enumerate(text.split("\n"), 1):
            match = searching.line_match(query, line)
            if match is not None:
                found.append({"repository_name": repo, "path": name, "line": number, **match})
                if len(found) >= limit:
                    return found
    return found
