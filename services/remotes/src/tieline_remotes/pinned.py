"""An HTTP transport that dials only what was checked: a name is resolved here, each address is checked against the
operator's allow-list, and the connection goes to the address that passed, whatever the name says a moment later."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import httpx2
from tieline_protocol.errors import Code, Refused

from tieline_remotes.addresses import Network, endpoint, permitted


class PinnedTransport(httpx2.AsyncHTTPTransport):
    """Raises Refused for an address that external remotes may not reach, before anything is dialled."""

    def __init__(self, allowed: Sequence[Network]) -> None:
        super().__init__(trust_env=False)  # a proxy from the environment would resolve names itself
        self._allowed = allowed

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host, port, secure = endpoint(str(request.url))
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as exc:
            raise Refused(Code.UNAVAILABLE, f"{host} does not resolve") from exc
        address = permitted([str(entry[4][0]) for entry in found], self._allowed)
        if secure:
            request.extensions = {**request.extensions, "sni_hostname": host}
        request.url = request.url.copy_with(host=address)  # the Host header was made from the name before
        return await super().handle_async_request(request)
