"""How each kind of process shows that it answers."""

from __future__ import annotations

import asyncio
import http.client
import json
from pathlib import Path
from typing import Any

from tieline_ops import broker
from tieline_ops.files import write_whole

_EVERY = 0.01


async def file(path: Path) -> dict[str, Any]:
    """The facts that a service writes once it is ready."""
    while True:
        try:
            facts: dict[str, Any] = json.loads(await asyncio.to_thread(path.read_text))
        except FileNotFoundError:
            await asyncio.sleep(_EVERY)
        else:
            return facts


async def nats(ports_file: Path) -> dict[str, Any]:
    """A server that accepts connections. The facts are its port and URL."""
    while True:
        port = broker.port_of(ports_file.read_bytes()) if ports_file.exists() else None
        if port is not None:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                greeting = await reader.read(5)
                writer.close()
                if greeting == b"INFO ":
                    return {"port": port, "url": f"nats://127.0.0.1:{port}"}
            except OSError:
                pass
        await asyncio.sleep(_EVERY)


async def agentctl(ready_file: Path, nonce: str, token_file: Path) -> dict[str, Any]:
    """A daemon that gave us its token; the token is in `token_file`, whoever uses it reads it at each use."""
    facts = await file(ready_file)
    write_whole(token_file, await asyncio.to_thread(_handshake, facts["port"], nonce))
    return facts


def _handshake(port: int, nonce: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)  # starts in half the time of httpx
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/auth/handshake", json.dumps({"nonce": nonce}), headers)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise OSError(f"the daemon refuses the handshake: {answer.status} {body[:200]!r}")
    return str(json.loads(body)["token"])
