"""Users with a connection here: what changes in their lists is told to every connection of theirs."""

from __future__ import annotations

import structlog
from tieline_protocol import frontend, subjects
from tieline_protocol.bus import Bus, Received
from tieline_protocol.errors import BadMessage
from tieline_protocol.messages import Changed

from tieline_gateway.connection import Connection

log = structlog.get_logger()


class Users:
    """Connections by user. One broker subscription for all of them: one for each user would cost 6 KiB of memory."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._viewers: dict[str, set[Connection]] = {}  # by the user's token

    async def listen(self) -> None:
        """Hear what changes, for as long as the connection to the broker is open. Raises Unavailable."""
        await self._bus.subscribe(subjects.ALL_CHANGED, self._changed)

    def entered(self, name: str, viewer: Connection) -> None:
        """A connection has said whose it is. Raises BadSubject."""
        self._viewers.setdefault(subjects.user_token(name), set()).add(viewer)

    def left(self, viewer: Connection) -> None:
        """A connection is gone."""
        if not viewer.user:
            return
        token = subjects.user_token(viewer.user)
        viewers = self._viewers.get(token, set())
        viewers.discard(viewer)
        if not viewers:
            self._viewers.pop(token, None)

    def _changed(self, received: Received) -> None:
        viewers = self._viewers.get(subjects.changed_user(received.subject))
        if viewers is None:
            return
        try:
            frame = frontend.notification("changed", Changed.decode(received.data).model_dump())
        except BadMessage as exc:
            log.warning("a change could not be understood", error=exc.message)
            return
        for viewer in viewers:
            viewer.socket.answer(frame)
