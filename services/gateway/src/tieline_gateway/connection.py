"""A frontend connection, for those who are not asked by it but tell it things: whose it is, and its socket."""

from __future__ import annotations

import asyncio
import secrets

from tieline_gateway.sockets import Socket


class Connection:
    """`user` is empty until somebody has said who they are."""

    __slots__ = ("_remotes_lock", "id", "socket", "user")

    def __init__(self, socket: Socket) -> None:
        self.id = secrets.token_urlsafe(12)
        self.socket = socket
        self.user = ""
        self._remotes_lock: asyncio.Lock | None = None

    @property
    def remotes_lock(self) -> asyncio.Lock:
        """What a connection exposes changes in the order in which it was asked for."""
        if self._remotes_lock is None:
            self._remotes_lock = asyncio.Lock()
        return self._remotes_lock
