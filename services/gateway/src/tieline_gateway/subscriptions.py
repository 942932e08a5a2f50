"""What one connection follows. Asking twice for the same changes nothing; asking for another place begins there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tieline_protocol.errors import Code, Refused
from tieline_protocol.frontend import OfThread, Payload, SessionSubscribe, SessionUnsubscribe, ThreadSubscribe

from tieline_gateway.broadcaster import Joined, SessionStreamBroadcaster
from tieline_gateway.close_codes import CloseCode
from tieline_gateway.hub import asked as asked_for
from tieline_gateway.joining import Follow
from tieline_gateway.sockets import Socket

LOGS = ("agent", "workspace")


class Subscriptions:
    """The followed logs of a connection, by session and log."""

    __slots__ = ("_broadcaster", "_close", "_follows", "_lock", "_most", "_socket")

    def __init__(
        self,
        broadcaster: SessionStreamBroadcaster,
        socket: Socket,
        close: Callable[[CloseCode], None],
        most: int,
    ) -> None:
        self._broadcaster = broadcaster
        self._socket = socket
        self._close = close
        self._most = most
        self._lock = asyncio.Lock()
        self._follows: dict[tuple[str, str], Follow] = {}

    def __len__(self) -> int:
        return len(self._follows)

    async def asked(self, user: str, payload: Payload, answer: Callable[[dict[str, Any]], None]) -> None:
        """A request to follow something or to stop; in the order in which they came. Raises TielineError."""
        async with self._lock:
            match payload:
                case SessionSubscribe():
                    await self.subscribe(user, payload, answer)
                case SessionUnsubscribe():
                    for name in payload.logs or LOGS:
                        self.leave(payload.session_id, name)
                    answer({})
                case ThreadSubscribe():
                    await self.subscribe_thread(user, payload, answer)
                case OfThread():
                    self.leave(payload.thread_id, "thread")
                    answer({})

    async def subscribe(
        self, user: str, wanted: SessionSubscribe, answer: Callable[[dict[str, Any]], None]
    ) -> None:
        """Follow a session's logs. `answer` is called before the first event. Raises TielineError."""
        session = wanted.session_id
        cursors: dict[str, str] = {str(name): cursor for name, cursor in (wanted.cursors or {}).items()}
        names = tuple(dict.fromkeys(wanted.logs or LOGS))
        told: dict[str, Any] = {}
        new: dict[str, str | None] = {}
        for name in names:
            follow = self._follows.get((session, name))
            cursor = cursors.get(name)
            if follow is not None and (cursor is None or asked_for(name, cursor) == follow.asked):
                told[name] = {"cursor": str(follow.cursor), "reset": False}
            else:
                new[name] = cursor
        if len(self._follows.keys() | {(session, name) for name in new}) > self._most:
            raise Refused(Code.TOO_LARGE, "too many logs are followed on this connection")
        joined = await self._broadcaster.join(user, session, new, self._socket, self._close)
        if not self._socket.open:
            for one in joined.values():
                self._broadcaster.leave(one.follow)
            return
        answer({"logs": {name: told.get(name) or _told(joined[name]) for name in names}})
        for name, one in joined.items():
            self.leave(session, name)
            self._follows[session, name] = one.follow
            one.follow.begin()

    async def subscribe_thread(
        self, user: str, wanted: ThreadSubscribe, answer: Callable[[dict[str, Any]], None]
    ) -> None:
        """Follow a thread. `answer` is called before the first event. Raises TielineError."""
        thread, cursor = wanted.thread_id, wanted.cursor
        follow = self._follows.get((thread, "thread"))
        if follow is not None and (cursor is None or asked_for("thread", cursor) == follow.asked):
            answer({"cursor": str(follow.cursor), "reset": False})
            return
        if follow is None and len(self._follows) >= self._most:
            raise Refused(Code.TOO_LARGE, "too many logs are followed on this connection")
        joined = await self._broadcaster.join(user, thread, {"thread": cursor}, self._socket, self._close)
        one = joined["thread"]
        if not self._socket.open:
            self._broadcaster.leave(one.follow)
            return
        answer(_told(one))
        self.leave(thread, "thread")
        self._follows[thread, "thread"] = one.follow
        one.follow.begin()

    def leave(self, session: str, log: str) -> None:
        """Follow a log no more; what waits of it is taken back."""
        follow = self._follows.pop((session, log), None)
        if follow is not None:
            self._broadcaster.leave(follow)

    def end(self) -> None:
        """Follow nothing any more."""
        for session, log in list(self._follows):
            self.leave(session, log)

    def has_room(self) -> None:
        """The viewer has read some of what waited."""
        for follow in list(self._follows.values()):
            follow.has_room()


def _told(joined: Joined) -> dict[str, Any]:
    return {"cursor": str(joined.cursor), "reset": joined.reset}
