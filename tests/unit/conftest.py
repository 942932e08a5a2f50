"""Fixtures that unit tests of several packages use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.otlp import Collector, collector


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Where this process sends its spans: a real collector of this test's own."""
    with collector() as found:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        yield found
