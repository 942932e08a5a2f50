"""Pure: which MCP servers an ACP session is given, and the diagnostics that say so."""

from collections.abc import Mapping, Sequence
from typing import Any

OWN = "kandev"  # the name is part of the wire


def given(
    asked: Sequence[Mapping[str, Any]],
    configured: Sequence[Mapping[str, Any]],
    port: int,
    capabilities: Mapping[str, Any],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The servers in ACP's spelling, ours first, and for each one considered what became of it."""
    own = [
        {"name": OWN, "type": "http", "url": f"http://localhost:{port}/mcp"},
        {"name": OWN, "type": "sse", "url": f"http://localhost:{port}/sse"},
    ]
    others = [server for server in (*configured, *asked) if server.get("name") != OWN]
    taken: dict[str, dict[str, Any]] = {}
    told = []
    for server in [*own, *others]:
        name = str(server.get("name") or "")
        transport = _transport(server)
        supported = transport == "stdio" or bool(capabilities.get(transport))
        fits = supported and name not in taken
        if fits:
            taken[name] = _as_acp(server, name, transport)
        told.append(
            {
                "server_name": name,
                "kind": "delivered" if fits else "filtered",
                "source": "kandev" if name == OWN else "profile",
                "transport": transport,
                **(
                    {}
                    if fits
                    else {"reason_code": "duplicate_name" if supported else "transport_unsupported"}
                ),
            }
        )
    return list(taken.values()), told


def _transport(server: Mapping[str, Any]) -> str:
    kind = server.get("type") or ("http" if server.get("url") else "stdio")
    return "http" if kind == "streamable_http" else str(kind)


def _as_acp(server: Mapping[str, Any], name: str, transport: str) -> dict[str, Any]:
    if transport == "stdio":
        return {
            "name": name,
            "command": server.get("command") or "",
            "args": list(server.get("args") or []),
            "env": _pairs(server.get("env")),
        }
    return {
        "type": transport,
        "name": name,
        "url": server.get("url") or "",
        "headers": _pairs(server.get("headers")),
    }


def _pairs(value: Any) -> list[dict[str, str]]:
    return [{"name": name, "value": item} for name, item in (value or {}).items()]
