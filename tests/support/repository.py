"""Scratch git repositories."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(path: Path, *words: str) -> str:
    """What a git command prints."""
    done = subprocess.run(["git", *words], cwd=path, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def make(path: Path) -> Path:
    """A repository with one commit on `main`."""
    path.mkdir(parents=True)
    (path / "README").write_text("A scratch repository.\n")
    git(path, "init", "--quiet", "--initial-branch=main")
    for name, value in (
        ("user.name", "Test"),
        ("user.email", "test@example.org"),
        ("commit.gpgsign", "false"),
    ):
        git(path, "config", name, value)
    git(path, "add", "README")
    git(path, "commit", "--quiet", "--message=Begin")
    return path
