"""Pure: who may use the MCP endpoint. It has no token, so only programs on this machine may.

The wire gives the agent `http://localhost:<port>/mcp` and no secret to go with it. Whoever reaches it can call the
user's functions, so a peer from elsewhere is refused even when the daemon listens on every interface, and so is a
web page that had its name rebound to this machine: its `Host` or `Origin` gives it away.
"""

import ipaddress
from urllib.parse import urlsplit


def refusal(peer: str, host: str, origin: str) -> str:
    """Why a request is refused; empty when it is let in. `origin` is empty for programs that are no browser."""
    if not _local(peer):
        return "the MCP endpoint is for this machine only"
    if not _local(_name(f"//{host}")):
        return "invalid Host header"
    if origin and not _local(_name(origin)):
        return "invalid Origin header"
    return ""


def _name(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _local(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
