"""Small files: written whole, secrets for our eyes only, and the lock on a data directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


class Locked(Exception):
    """Another system uses the data directory."""


def write_whole(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file that nobody ever sees half-written."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
        file.write(text)
    os.replace(part, path)


def secret(path: Path) -> str:
    """The secret kept in a file, made when there is none."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, secrets.token_hex(32))
    return path.read_text().strip()


def secret_of_system(path: Path) -> str | None:
    """The secret that a system has made; None where there never was one."""
    try:
        return path.read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory for ourselves. Raises Locked."""
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise Locked(f"{directory} is in use by another system") from exc
        yield
    finally:
        os.close(descriptor)
