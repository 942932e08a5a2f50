"""The container engine's HTTP API over its unix socket: the few requests that containers of ours need.

Without a version in the path the engine speaks its own newest one, and what is used here is the same in all of them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from tieline_protocol import jsontext
from tieline_protocol.errors import BadMessage, TimedOut, Unavailable

_CONNECT = 3.0
_TIMEOUT = 30.0


class Missing(Unavailable):
    """The engine does not have it."""


class Engine:
    """One engine. Every method raises Unavailable and TimedOut; Missing where it says so."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def labelled(self, name: str, value: str) -> list[dict[str, Any]]:
        """Containers with a label, also those that have ended: `Id`, `State` and so on."""
        filters = jsontext.dumps({"label": [f"{name}={value}"]}).decode()
        found = await self._ask("GET", "/containers/json", {"all": "true", "filters": filters})
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    async def create(self, name: str, wanted: dict[str, Any]) -> str:
        """The id of a new container. Raises Missing (no such image)."""
        made = await self._ask("POST", "/containers/create", {"name": name}, wanted)
        if not isinstance(made, dict) or not isinstance(made.get("Id"), str):
            raise Unavailable("the container engine's answer names no container")
        id: str = made["Id"]
        return id

    async def start(self, id: str) -> None:
        await self._ask("POST", f"/containers/{quote(id, safe='')}/start")

    async def inspect(self, id: str) -> dict[str, Any]:
        """Raises Missing."""
        found = await self._ask("GET", f"/containers/{quote(id, safe='')}/json")
        return found if isinstance(found, dict) else {}

    async def remove(self, id: str, grace: int) -> None:
        """Stop it, with so many seconds to end in order, and delete it; one that is not there any more is fine."""
        path = f"/containers/{quote(id, safe='')}"
        try:
            await self._ask("POST", f"{path}/stop", {"t": str(grace)})
            await self._ask("DELETE", path, {"force": "true", "v": "true"})
        except Missing:
            pass

    async def _ask(
        self, method: str, path: str, query: dict[str, str] | None = None, body: Any = None
    ) -> Any:
        transport = httpx.AsyncHTTPTransport(uds=str(self._socket))
        timeout = httpx.Timeout(None, connect=_CONNECT)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine", timeout=timeout) as http:
            content = None if body is None else jsontext.dumps(body)
            headers = {} if content is None else {"Content-Type": "application/json"}
            try:
                async with asyncio.timeout(_TIMEOUT):
                    answer = await http.request(method, path, params=query, content=content, headers=headers)
            except TimeoutError as exc:
                raise TimedOut(f"the container engine did not answer within {_TIMEOUT:g} s") from exc
            except httpx.HTTPError as exc:
                raise Unavailable(
                    f"the container engine cannot be reached: {exc or type(exc).__name__}"
                ) from exc
        return _judged(answer.status_code, answer.content)


def _judged(status: int, body: bytes) -> Any:
    try:
        value = jsontext.loads(body) if body else None
    except BadMessage:
        value = None
    if 200 <= status < 400:
        return value
    said = value.get("message") if isinstance(value, dict) else None
    kind = Missing if status == 404 else Unavailable
    raise kind(f"the container engine answered {status}: {said or body[:200].decode(errors='replace')}")
