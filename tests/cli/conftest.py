"""One running system for the command's tests, and what is in it: a session that was prompted, a remote, a chat."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.support.system import System

REMOTE = '''"""Things on a desk."""

import time


def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    a: the first
    """
    return a + b


def note(text: str) -> str:
    """Write a note."""
    return f"noted: {text}"


def slow(seconds: float) -> None:
    """Sleep."""
    time.sleep(seconds)


def fail() -> None:
    """Never works."""
    raise RuntimeError("on purpose \\x1b[2J")
'''


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A running system. One for each worker of a run."""
    system = System(tmp_path_factory.mktemp("cli"))
    asyncio.run(system.__aenter__())
    yield system
    asyncio.run(system.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home directory of the tests' own, with a module that may be served."""
    directory = tmp_path_factory.mktemp("home")
    (directory / "desk.py").write_text(REMOTE)
    return directory


@pytest.fixture(scope="session")
def tieline(running: System, home: Path) -> Command:
    """The command, about the running system."""
    return Command(home, {"TIELINE_DATA": str(running.data)})


@pytest.fixture(scope="session")
def session(tieline: Command) -> str:
    """A session whose agent has answered."""
    opened = tieline("open", "golden", "--title", "Golden one").text.strip()
    tieline("prompt", opened, "say Hello.")
    return opened


@pytest.fixture(scope="session")
def desk(tieline: Command) -> Iterator[str]:
    """A remote that is served by the command."""
    with tieline.started("serve", "desk") as served:
        served.until(b"desk serves")
        yield "desk"


@pytest.fixture(scope="session")
def thread(tieline: Command, desk: str) -> str:
    """A chat thread with an answer."""
    told = tieline("chat", "--remote", desk, f'call {desk}__add {{"a": 2}}')
    with contextlib.suppress(StopIteration):
        return next(line.split()[1] for line in told.errors.splitlines() if line.startswith("thread "))
    raise AssertionError(told)
