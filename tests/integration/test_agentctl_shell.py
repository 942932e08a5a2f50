"""The shell and the processes of a real daemon, as a backend sees them on the workspace stream."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, Instance, daemon


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Daemon]:
    async with daemon(tmp_path / "daemon") as it:
        yield it


@pytest.fixture
async def instance(running: Daemon, tmp_path: Path) -> AsyncIterator[Instance]:
    (tmp_path / "work").mkdir()
    async with running.instance(tmp_path / "work") as it:
        yield it


async def test_what_is_typed_runs_and_is_seen(instance: Instance) -> None:
    async with instance.stream() as stream:
        await instance.post("/api/v1/shell/start")
        await stream.type("echo $((40 + 2))\r")

        assert "42" in await stream.until_text("\r\n42")
