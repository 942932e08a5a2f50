"""`make demo`, as it is."""

import asyncio
import sys

import pytest


@pytest.mark.timeout(120)
async def test_the_demo_says_ok() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tieline_ops",
        "demo",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    text = output.decode()

    assert process.returncode == 0, text
    assert text.splitlines()[-1] == "demo: ok"
