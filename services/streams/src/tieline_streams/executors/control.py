"""The control server of a daemon: handshake, create and delete instances."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

from tieline_protocol import jsontext
from tieline_protocol.agentctl_http import Call
from tieline_protocol.errors import Code, Refused, TielineError, Unavailable
from tieline_protocol.messages import InstanceRecord

from tieline_streams.executors import Wanted
from tieline_streams.instance import client, fetch, judge

_TIMEOUT = 30.0
_ASKED = 5.0
_CAP = 1024 * 1024


async def handshake(url: str, nonce: str) -> str:
    """Trade the nonce for the token. Raises TielineError."""
    value = await _ask(url, "", Call("POST", "/auth/handshake", {}, {"nonce": nonce}, False))
    return str(value["token"])


async def create(url: str, token: str, wanted: Wanted) -> InstanceRecord:
    """A new instance for a session. Raises TielineError."""
    body = {
        "id": wanted.session,
        "workspace_path": str(wanted.workspace),
        "protocol": "acp",
        "session_id": wanted.session,
    }
    value = await _ask(url, token, Call("POST", "/api/v1/instances", {}, body, False))
    id, port = value.get("id"), value.get("port")
    if not isinstance(id, str) or not isinstance(port, int):
        raise Refused(Code.INTERNAL, "the daemon's answer names no instance")
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname
    return InstanceRecord(instance=id, url=f"{parts.scheme}://{host}:{port}", token=token)


async def answers(url: str, timeout: float) -> bool:
    """Whether anything that speaks HTTP answers there."""
    try:
        async with client(url, {}) as http:
            await fetch(http, Call("GET", "/health", {}, None, True), timeout, _CAP)
    except TielineError:
        return False
    return True


async def exists(url: str, token: str, instance: str) -> bool | None:
    """Whether the control server knows an instance; None where it cannot be asked."""
    call = Call("GET", f"/api/v1/instances/{quote(instance, safe='')}", {}, None, True)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        async with client(url, headers) as http:
            status, body = await fetch(http, call, _ASKED, _CAP)
        value = jsontext.loads(body)
    except TielineError:
        return None
    known = isinstance(value, dict) and (value.get("id") == instance or "error" in value)
    return {200: True, 404: False}.get(status) if known else None


async def delete(url: str, token: str, instance: str) -> None:
    """End an instance; one that is not there any more is fine. Raises TielineError."""
    call = Call("DELETE", f"/api/v1/instances/{quote(instance, safe='')}", {}, None, False)
    try:
        await _ask(url, token, call)
    except Refused as exc:
        if exc.code is not Code.NOT_FOUND:
            raise


async def _ask(url: str, token: str, call: Call) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with client(url, headers) as http:
        status, body = await fetch(http, call, _TIMEOUT, _CAP)
    if status == 204:
        return {}
    if status >= 500:
        raise Unavailable(
            f"the daemon's control server answered {status}: {body[:200].decode('utf-8', 'replace')}"
        )
    _, value = judge(status, body)
    return value if isinstance(value, dict) else {}
