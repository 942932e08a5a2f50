"""`python forwarder.py LOCAL HOST REMOTE LOG`: forwards a local TCP port, as `ssh -N -L` does.

Appends its pid to LOG. A file `LOG.refuse` makes it end at once with a reason, `LOG.deaf` lets it forward nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def main(local: int, host: str, remote: int, log: Path) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if log.with_suffix(".deaf").exists():
            await asyncio.Event().wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(host, remote)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", local)
    await server.serve_forever()


if __name__ == "__main__":
    port, target, far, path = sys.argv[1:]
    noted = Path(path)
    if noted.with_suffix(".refuse").exists():
        sys.exit("connect to host: No route to host")
    with noted.open("a") as file:
        file.write(f"{os.getpid()} {far}\n")
    asyncio.run(main(int(port), target, int(far), noted))
