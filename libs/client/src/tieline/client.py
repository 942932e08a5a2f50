"""One connection to a gateway: requests and their answers, subscriptions, notifications.

The connection is opened by entering the block and closed by leaving it; when it is lost, everything that waits
raises Disconnected. Requests of one task are sent in the order in which they were made.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from tieline import frames
from tieline.errors import Disconnected, TielineError
from tieline.frames import Frame
from tieline.subscription import Event, Notifications, Subscription

LOGS = ("agent", "workspace")
_MAX_FRAME = 32 * 1024 * 1024  # above the largest event (7 MiB) and answer (5 MB), escapes included
_TIMEOUT = 75.0  # session.open may take 60 s


class Client:
    """`async with Client(url, token) as client`. `user_id`, `connection_id` and `limits` are the server's."""

    def __init__(
        self, url: str, token: str, *, connect_timeout: float = 10, origin: str | None = None
    ) -> None:
        self.url = url
        self.user_id = ""
        self.connection_id = ""
        self.limits: dict[str, int] = {}
        self._token = token
        self._connect_timeout = connect_timeout
        self._origin = origin
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._ids = itertools.count(1)
        self._pending: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._notifications: dict[str, list[Notifications]] = {}
        self._gone: Disconnected | None = None

    async def __aenter__(self) -> Self:
        try:
            self._socket = await connect(
                self.url,
                origin=self._origin,  # type: ignore[arg-type]  # a NewType of str
                compression=None,
                max_size=_MAX_FRAME,
                max_queue=64,
                open_timeout=self._connect_timeout,
                close_timeout=2,
                proxy=None,
            )
        except (OSError, TimeoutError, InvalidHandshake, InvalidURI, EOFError) as exc:
            raise TielineError("unavailable", f"cannot connect to {self.url}: {exc}") from exc
        self._reader = asyncio.create_task(self._read(self._socket), name="tieline client")
        try:
            await self.authenticate(self._token)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; iterators end. Doing it twice changes nothing."""
        if self._socket is not None:
            self._finish(None)
            await self._socket.close()
        if self._reader is not None:
            await asyncio.wait([self._reader])

    async def authenticate(self, token: str) -> None:
        """Say who we are; again, with a new token, before the present one expires."""
        told = await self.request("auth", {"token": token}, timeout=self._connect_timeout)
        self.user_id = told.get("user_id", "")
        self.connection_id = told.get("connection_id", "")
        self.limits = told.get("limits", {})

    async def request(
        self, action: str, payload: dict[str, Any] | None = None, *, timeout: float = _TIMEOUT
    ) -> dict[str, Any]:
        """The answer's payload. Raises TielineError with the server's code, `timeout`, or Disconnected."""
        if self._socket is None:
            raise TielineError("disconnected", "not connected")
        if self._gone is not None:
            raise self._gone
        id = str(next(self._ids))
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending[id] = future
        try:
            async with asyncio.timeout(timeout):
                await self._send(Frame("request", action, payload or {}, id))
                return await future
        except TimeoutError as exc:
            raise TielineError("timeout", f"no answer to {action} within {timeout:g} s") from exc
        finally:
            del self._pending[id]
            if future.done() and not future.cancelled():
                future.exception()  # seen: the sending may have failed first

    async def subscribe(
        self,
        session_id: str,
        logs: Sequence[str] = LOGS,
        cursors: dict[str, str] | None = None,
    ) -> Subscription:
        """Follow a session. `cursors`: for a log, where to go on, or "start", "snapshot", "now".

        One subscription for each log of a session and connection.
        """
        subscription = Subscription(session_id, tuple(logs), self._left)
        keys = [(session_id, log) for log in logs]
        if any(key in self._subscriptions for key in keys):
            raise TielineError("conflict", "this connection follows that log already")
        self._subscriptions.update(dict.fromkeys(keys, subscription))
        payload = {"session_id": session_id, "logs": list(logs), "cursors": cursors or {}}
        try:
            subscription._begin(await self.request("session.subscribe", payload))
        except BaseException:
            self._forget(subscription)
            raise
        return subscription

    def notifications(self, action: str) -> Notifications:
        """Notifications of one kind (`changed`, say) from now on."""
        notifications = Notifications(lambda gone: self._notifications[action].remove(gone))
        self._notifications.setdefault(action, []).append(notifications)
        return notifications

    async def _left(self, subscription: Subscription) -> None:
        self._forget(subscription)
        if self._gone is None:
            payload = {"session_id": subscription.session_id, "logs": list(subscription.logs)}
            with contextlib.suppress(Disconnected):  # then there is nothing to leave
                await self.request("session.unsubscribe", payload)

    def _forget(self, subscription: Subscription) -> None:
        for log in subscription.logs:
            self._subscriptions.pop((subscription.session_id, log), None)

    async def _send(self, frame: Frame) -> None:
        assert self._socket is not None
        try:
            await self._socket.send(frames.encode(frame), text=True)
        except ConnectionClosed as exc:
            raise self._gone or _why(exc) from exc

    async def _read(self, socket: ClientConnection) -> None:
        gone = Disconnected()
        try:
            while True:
                text = await socket.recv(decode=False)
                frame = frames.decode(text)
                if frame is None:
                    continue
                if frame.kind == "notification":
                    self._notified(frame, len(text))
                elif frame.kind != "request":
                    self._answered(frame)
                else:
                    refusal = {"code": "unknown_action", "message": f"this client serves no {frame.action!r}"}
                    await self._send(Frame("error", frame.action, refusal, frame.id))
        except ConnectionClosed as exc:
            gone = _why(exc)
        except Disconnected as exc:
            gone = exc
        finally:
            self._ended(gone)

    def _answered(self, frame: Frame) -> None:
        future = self._pending.get(frame.id or "")
        if future is None or future.done():
            return
        if frame.kind == "error":
            future.set_exception(frames.error(frame.payload))
        else:
            future.set_result(frame.payload)

    def _notified(self, frame: Frame, size: int) -> None:
        if frame.action == "session.event":
            payload = frame.payload
            session_id, log = payload.get("session_id", ""), payload.get("log", "")
            subscription = self._subscriptions.get((session_id, log))
            if subscription is not None:
                event = Event(
                    session_id,
                    log,
                    payload.get("cursor", ""),
                    payload.get("time", 0),
                    payload.get("event", {}),
                )
                subscription._put(event, size)
            return
        for notifications in self._notifications.get(frame.action, ()):
            notifications._put(frame.payload)

    def _ended(self, gone: Disconnected) -> None:
        self._gone = gone
        for future in self._pending.values():
            if not future.done():
                future.set_exception(gone)
        self._finish(gone)

    def _finish(self, why: Disconnected | None) -> None:
        for subscription in set(self._subscriptions.values()):
            subscription._finish(why)
        for several in self._notifications.values():
            for notifications in several:
                notifications._finish(why)


def _why(exc: ConnectionClosed) -> Disconnected:
    if exc.rcvd is None:
        return frames.disconnected(None, "")
    return frames.disconnected(exc.rcvd.code, exc.rcvd.reason)
