"""The examples of the documents, run against a real system."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from tests.support.system import System

ROOT = Path(__file__).parents[2]


def example(page: str, number: int) -> str:
    found: list[str] = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return [code for code in found if "TIELINE_URL" in code][number]


@pytest.mark.timeout(40)
@pytest.mark.parametrize(
    ("page", "number", "printed"),
    [
        ("README.md", 0, "Hello, world."),
        ("docs/python-client.md", 0, "not_found\n"),
        ("docs/python-client.md", 1, "file_write Write note.txt\nhello\n"),
        ("docs/python-client.md", 2, "opened by ann\n"),
    ],
)
async def test_the_example_does_what_it_says(
    page: str, number: int, printed: str, shared_system: System
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", example(page, number)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "TIELINE_URL": shared_system.url, "TIELINE_TOKEN": shared_system.token()},
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), 30)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert output.decode() == printed
