"""Users with a connection here: what changes in their lists is told to every connection of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from tieline_protocol import frontend, subjects
from tieline_protocol.bus import Bus, Received, Subscription
from tieline_protocol.errors import BadMessage
from tieline_protocol.messages import Changed

if TYPE_CHECKING:
    from tieline_gateway.viewer import Viewer

log = structlog.get_logger()


class _User:
    __slots__ = ("subscription", "viewers")

    def __init__(self) -> None:
        self.viewers: set[Viewer] = set()
        self.subscription: Subscription | None = None


class Users:
    """One broker subscription for each user, while there is a connection."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._users: dict[str, _User] = {}

    async def entered(self, name: str, viewer: Viewer) -> None:
        """A connection has said whose it is. Raises Unavailable."""
        user = self._users.get(name)
        if user is not None:
            user.viewers.add(viewer)
            return
        user = self._users[name] = _User()
        user.viewers.add(viewer)

        def changed(received: Received) -> None:
            self._changed(user, received)

        try:
            user.subscription = await self._bus.subscribe(subjects.changed(name), changed)
        except BaseException:
            self._users.pop(name, None)
            raise
        if self._users.get(name) is not user:  # gone again meanwhile
            await user.subscription.close()

    def left(self, viewer: Viewer) -> Subscription | None:
        """A connection is gone; returns the subscription to close where it was the user's last."""
        user = self._users.get(viewer.user)
        if user is None:
            return None
        user.viewers.discard(viewer)
        if user.viewers:
            return None
        del self._users[viewer.user]
        return user.subscription

    def _changed(self, user: _User, received: Received) -> None:
        try:
            frame = frontend.notification("changed", Changed.decode(received.data).model_dump())
        except BadMessage as exc:
            log.warning("a change could not be understood", error=exc.message)
            return
        for viewer in user.viewers:
            viewer.socket.answer(frame)
