"""The whole cluster on this machine: one for all tests that only use it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.support.deployment import Deployment


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """What the manifests render to, running; the broker writes down what it is told."""
    deployment = Deployment(tmp_path_factory.mktemp("cluster"), trace=True)
    asyncio.run(deployment.__aenter__())
    yield deployment
    asyncio.run(deployment.__aexit__())
