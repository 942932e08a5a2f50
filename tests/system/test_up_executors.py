"""Executors that a user of `tieline up` adds in the data directory."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tieline_ops import ports

from tests.support import forwarder
from tests.support.frontend import Frontend
from tests.support.system import System


@pytest.mark.long
@pytest.mark.timeout(40)
async def test_an_executor_of_the_users_own_is_there_beside_the_others(tmp_path: Path) -> None:
    port = ports.free()
    system = System(tmp_path, ["--agentctl-port", str(port)])
    system.data.mkdir()
    (tmp_path / "there").mkdir()
    tunnel = {
        "kind": "tunnel",
        "command": [
            *(sys.executable, forwarder.__file__, "{local}", "{host}", "{remote}"),
            str(tmp_path / "commands"),
        ],
        "port": port,
        "token_file": str(system.data / "run" / "agentctl-token"),
        "root": str(tmp_path / "there"),
    }
    (system.data / "executors.json").write_text(json.dumps({"executors": {"tunnel": tunnel}}))
    async with system:
        async with Frontend(system.url, system.token()) as front:
            session = await front.open(executor="tunnel", workspace="mine")
            await front.watch(session)
            await front.ask("shell.input", session, data="touch made-$((40 + 2)); echo done-$((40 + 2))\n")
            await front.until_screen("done-42")
            await front.open()
        code = await system.stop(20)

        assert (tmp_path / "there" / "mine" / "made-42").exists()
        assert code == 0
        assert system.processes() == {}


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "executors.json cannot be read"),
        ('{"executors": {"x": {"kind": "moon"}}}', "moon"),
    ],
)
async def test_a_file_of_executors_that_is_wrong_ends_the_start_with_the_reason(
    tmp_path: Path, text: str, why: str
) -> None:
    system = System(tmp_path, ready=False)
    system.data.mkdir()
    (system.data / "executors.json").write_text(text)
    await system.start()

    assert await system.wait(20) == 1
    assert why in system.log
    assert system.processes() == {}
