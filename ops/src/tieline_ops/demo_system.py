"""What the demo stands on: a scratch repository, and a system of its own that ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

Say = Callable[[str, str], None]

PATIENCE = 30.0  # for each step
_PR_SET_PDEATHSIG = 1


class Failed(Exception):
    """The demo did not go as it must."""


@contextlib.asynccontextmanager
async def system(root: Path, say: Say) -> AsyncIterator[dict[str, Any]]:
    """`tieline up` on free ports; its facts once everything answers. Raises Failed."""
    ready_file = root / "ready.json"
    options = ["--data", str(root), "--ready-file", str(ready_file)]
    for name in ("gateway", "nats", "agentctl"):
        options += [f"--{name}-port", "0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tieline_ops", "up", *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        # A script answers the same at every run, and costs nothing; the user's own shell may take long to begin.
        env={**os.environ, "OPENAI_API_KEY": "", "SHELL": "/bin/sh"},
        start_new_session=True,  # Ctrl-C is for us; we then stop it
        preexec_fn=_stop_with_us if sys.platform == "linux" else None,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(_show(process, say), name="what the system says")
        try:
            async with asyncio.timeout(PATIENCE):
                while not ready_file.exists():
                    if process.returncode is not None:
                        raise Failed("the system could not be started")
                    await asyncio.sleep(0.01)
            yield json.loads(ready_file.read_text())
        except TimeoutError:
            raise Failed(f"the system is not ready after {PATIENCE:g} s") from None
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            code = await process.wait()
    if code != 0:
        raise Failed(f"the system ended with {code}")


def _stop_with_us() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def _show(process: asyncio.subprocess.Process, say: Say) -> None:
    assert process.stdout is not None
    async for raw in process.stdout:
        words = raw.decode(errors="replace").rstrip("\n").split(maxsplit=2)  # time, name, text
        say(words[1] if len(words) == 3 else "tieline", words[-1] if words else "")


def make_repository(path: Path) -> None:
    """A repository with one commit, for the demo to work in."""
    path.mkdir(parents=True)
    (path / "README").write_text("A scratch repository.\n")
    git(path, "init", "--quiet", "--initial-branch=main")
    git(path, "config", "user.name", "Demo")
    git(path, "config", "user.email", "demo@example.org")
    git(path, "config", "commit.gpgsign", "false")
    git(path, "add", "README")
    git(path, "commit", "--quiet", "--message=Begin")


def git(path: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words],
        cwd=path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    if done.returncode != 0:
        raise Failed(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()
