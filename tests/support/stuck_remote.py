"""A script that serves a remote whose function never ends: a process for tests to kill.

`python stuck_remote.py URL TOKEN NAME --ready-file PATH`
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from tieline import Client, Remote


async def serve(url: str, token: str, name: str, ready: Path) -> None:
    remote = Remote(name)

    @remote.function
    async def wait(value: int) -> int:
        """Never answers.

        value: Anything
        """
        return await asyncio.get_running_loop().create_future()

    async with Client(url, token) as client, client.serve(remote):
        ready.write_text("{}")
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("token")
    parser.add_argument("name")
    parser.add_argument("--ready-file", type=Path, required=True)
    given = parser.parse_args()
    asyncio.run(serve(given.url, given.token, given.name, given.ready_file))
