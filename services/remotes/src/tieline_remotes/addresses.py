"""Pure: which addresses an external remote may have.

A user names an address that our servers then talk to; so nothing of our own network is reachable that way unless an
operator's allow-list says so. The address is resolved once and what was checked is what is dialled.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from tieline_protocol.errors import Code, Refused

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(text: str) -> tuple[Network, ...]:
    """An operator's allow-list: networks separated by commas. Raises ValueError."""
    return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())


def endpoint(url: str) -> tuple[str, int, bool]:
    """Host, port and whether TLS is used. Raises Refused (bad_request)."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise Refused(Code.BAD_REQUEST, f"not an address: {exc}") from exc
    if parts.scheme not in ("http", "https") or not host:
        raise Refused(Code.BAD_REQUEST, "an external remote has an http or https address")
    if parts.username is not None or parts.password is not None:
        raise Refused(Code.BAD_REQUEST, "no user name or password in the address; use headers")
    return host, port or (443 if parts.scheme == "https" else 80), parts.scheme == "https"


def permitted(found: Sequence[str], allowed: Iterable[Network]) -> str:
    """The first address to dial, if every address that a name resolved to may be dialled. Raises Refused."""
    if not found:
        raise Refused(Code.BAD_REQUEST, "the address does not resolve")
    allow = tuple(allowed)
    for text in found:
        address = ipaddress.ip_address(text)
        mapped = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None) or address
        if any(candidate in network for network in allow for candidate in (address, mapped)):
            continue
        # is_global leaves out loopback, private, link-local (with cloud metadata), shared and reserved ranges
        if not address.is_global or not mapped.is_global or address.is_multicast:
            raise Refused(Code.BAD_REQUEST, "the address is in a range that external remotes may not reach")
    return found[0]
