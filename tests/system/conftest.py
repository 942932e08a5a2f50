"""Running systems: one for all tests that only use it, one for each test that harms it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.support.frontend import Frontend
from tests.support.system import System


@pytest.fixture(scope="session")
def shared_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A running system that no test breaks. One for each worker of a run."""
    system = System(tmp_path_factory.mktemp("system"))
    asyncio.run(system.__aenter__())
    yield system
    asyncio.run(system.__aexit__(None, None, None))


@pytest.fixture
async def system(tmp_path: Path) -> AsyncIterator[System]:
    """A running system of the test's own."""
    async with System(tmp_path) as running:
        yield running


@pytest.fixture
def frontend(shared_system: System) -> Callable[[], Frontend]:
    """Another frontend of the shared system, as the user `dev`."""
    return lambda: Frontend(shared_system.url, shared_system.token())
