"""A short chaos; `make chaos` plays ten minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import chaos


@pytest.mark.timeout(180)
async def test_services_that_are_killed_at_random_leave_nothing_behind(tmp_path: Path) -> None:
    outcome = await chaos(tmp_path, 20, 20, seed=4)

    print(outcome)
    assert outcome.wrong == []
    assert outcome.leaks == []
    assert outcome.converged < 45  # 15 s on a machine of its own, as `make chaos` wants
