"""What tests of faults share: scripted daemons behind links, and replicas that a test may stop, kill and continue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tieline_streams.config import Executors

from tests.support import streams
from tests.support.process import Process
from tests.support.scripted_daemon import Mode, ScriptedDaemon

Replica = Callable[..., Process]


@pytest.fixture
def mode() -> Mode:
    """How the daemon keeps its events; a test may parametrize it."""
    return "field"


@pytest.fixture
async def daemon(mode: Mode) -> AsyncIterator[ScriptedDaemon]:
    async with ScriptedDaemon(mode) as scripted:
        yield scripted


@pytest.fixture
def known(daemon: ScriptedDaemon, tmp_path: Path) -> Executors:
    return streams.executors(daemon, tmp_path)


@pytest.fixture
def replica(known: Executors, tmp_path: Path) -> Replica:
    """`replica(name, broker_url, *options)`: a streams process, to be entered."""
    file = tmp_path / "executors.json"
    file.write_text(known.model_dump_json())

    def make(name: str, broker: str, *options: str) -> Process:
        args = ["--executors-file", str(file), "--nats-url", broker, "--log-format", "text", *options]
        return Process("tieline_streams", tmp_path / "run", args, name=name, timeout=30)

    return make
