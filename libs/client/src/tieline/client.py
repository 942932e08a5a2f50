"""The client: it connects, comes back after a loss, goes on watching where it was, and serves its remotes again.

A request under way when the connection is lost raises Disconnected and is not repeated: it may have been carried
out. One that is made while there is no connection waits for the next. Subscriptions and remotes live on; what a
subscription missed meanwhile it gets from the log, by cursor.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Self

from tieline import tracing
from tieline.calls import MadeCalls, OnProgress
from tieline.connection import FIRST_WAIT, MOST_WAIT, TIMEOUT, Connection, Told, dial, insist
from tieline.errors import Disconnected, TielineError
from tieline.frames import Frame
from tieline.remote import Remote
from tieline.serving import Served, Serving
from tieline.subscription import Notifications, Subscription
from tieline.watching import Watching

LOGS = ("agent", "workspace")
_CALL_TIMEOUT_MS = 30_000


class Client:
    """`async with Client(url, token) as client`. `user_id`, `connection_id` and `limits` are the server's.

    `token` may be a function that gives one, for tokens that expire. Entering the block connects, and raises
    TielineError where that fails; a connection that is lost later is made again, with growing waits, unless
    `reconnect` is False or the server said not to come back.
    """

    def __init__(
        self,
        url: str,
        token: str | Callable[[], str],
        *,
        connect_timeout: float = 10,
        origin: str | None = None,
        reconnect: bool = True,
    ) -> None:
        self.url = url
        self.user_id = ""
        self.connection_id = ""
        self.limits: dict[str, int] = {}
        self._token = token
        self._connect_timeout = connect_timeout
        self._origin = origin
        self._reconnect = reconnect
        self._connection: Connection | None = None
        self._up = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._watching = Watching()
        self._serving = Serving(self._notify, lambda: self.limits.get("result_bytes", 5_000_000))
        self._made = MadeCalls(self._ask, self._notify)
        self._end: Disconnected | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        self._connection = await self._dial()
        self._up.set()
        self._keeper = asyncio.create_task(self._keep(), name="tieline client")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; iterators end, whatever waits raises Disconnected. Twice changes nothing."""
        self._closed = True
        self._end = self._end or Disconnected(1000, "the client was closed")
        self._watching.finish(None)
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        if self._connection is not None:
            await self._connection.close()
        self._up.set()  # whoever waits for a connection hears that there will be none
        self._made.lost(self._end)
        await self._made.close()
        await self._serving.end()

    # Requests

    async def request(
        self, action: str, payload: dict[str, Any] | None = None, *, timeout: float = TIMEOUT
    ) -> dict[str, Any]:
        """The answer's payload. Raises TielineError with the server's code, `timeout`, or Disconnected.

        Requests of one task are sent in the order in which they were made.
        """
        return await self._ask(action, payload or {}, timeout)

    async def _ask(
        self, action: str, payload: dict[str, Any], timeout: float = TIMEOUT, told: Told | None = None
    ) -> dict[str, Any]:
        connection = self._connection if self._up.is_set() else await self._connected(timeout)
        assert connection is not None
        return await connection.request(action, payload, timeout, told, tracing.current())

    async def authenticate(self, token: str) -> None:
        """A new token, before the present one expires; also for the connections to come."""
        self._token = token
        await self._introduce(await self._connected(self._connect_timeout))

    async def _connected(self, timeout: float) -> Connection:
        if self._end is not None:
            raise self._end
        if self._connection is None or self._closed:
            raise TielineError("disconnected", "not connected")
        try:
            async with asyncio.timeout(timeout):
                await self._up.wait()
        except TimeoutError as exc:
            raise TielineError("timeout", f"no connection within {timeout:g} s") from exc
        if self._end is not None:
            raise self._end
        return self._connection

    async def _notify(self, action: str, payload: dict[str, Any]) -> None:
        if self._connection is not None:
            await self._connection.notify(action, payload)

    # Watching

    async def subscribe(
        self,
        session_id: str,
        logs: Sequence[str] = LOGS,
        cursors: dict[str, str] | None = None,
    ) -> Subscription:
        """Follow a session. `cursors`: for a log, where to go on, or "start", "snapshot", "now".

        One subscription for each log of a session and client.
        """
        return await self._follow(Subscription(session_id, tuple(logs), cursors or {}, self._left))

    async def subscribe_thread(self, thread_id: str, cursor: str | None = None) -> Subscription:
        """Follow a chat thread; from its beginning where no cursor is given."""
        cursors = {} if cursor is None else {"thread": cursor}
        return await self._follow(Subscription(thread_id, ("thread",), cursors, self._left))

    async def _follow(self, subscription: Subscription) -> Subscription:
        self._watching.add(subscription)
        try:
            await self._ask(*subscription._joining(), told=subscription._begin)
        except BaseException:
            self._watching.forget(subscription)
            raise
        return subscription

    async def _left(self, subscription: Subscription) -> None:
        self._watching.forget(subscription)
        if self._up.is_set() and self._end is None and not self._closed:
            with contextlib.suppress(Disconnected):  # then there is nothing to leave
                await self.request(*subscription._leaving())

    def notifications(self, action: str) -> Notifications:
        """Notifications of one kind (`changed`, say) from now on."""
        return self._watching.listen(action)

    # Remotes

    @contextlib.asynccontextmanager
    async def serve(self, remote: Remote, *, external: dict[str, Any] | None = None) -> AsyncIterator[Served]:
        """Expose a remote's functions until the block is left; they are registered again after every reconnect.

        Somebody who registers the same name later takes it over: `served.replaced` is set, and it is not taken back.
        """
        served = self._serving.add(remote, external)
        try:
            served._registered(await self.request("remote-connect", served._registration()))
            yield served
        finally:
            self._serving.remove(served)
            if not served.replaced.is_set():
                with contextlib.suppress(TielineError):
                    if self._up.is_set():
                        await self.request("remote-disconnect", {"remotename": remote.name}, timeout=5)

    async def call(
        self,
        remotename: str,
        function: str,
        args: dict[str, Any] | None = None,
        *,
        timeout_ms: int = _CALL_TIMEOUT_MS,
        on_progress: OnProgress | None = None,
    ) -> Any:
        """Call a function of one of the user's remotes. Cancelling the task cancels the call.

        Raises TielineError with the code of the call's end (`timeout`, `disconnected`, `invalid_arguments`, …).
        """
        payload = {
            "remotename": remotename,
            "function": function,
            "args": args or {},
            "timeout_ms": timeout_ms,
        }
        return await self._made.call(payload, timeout_ms / 1000, on_progress)

    # The connection, again and again

    async def _dial(self) -> Connection:
        connection = await dial(self.url, self._origin, self._connect_timeout, self._heard, self._up.clear)
        try:
            await self._introduce(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _introduce(self, connection: Connection) -> None:
        token = self._token if isinstance(self._token, str) else self._token()
        told = await connection.request("auth", {"token": token}, self._connect_timeout)
        self.user_id = told.get("user_id", "")
        self.connection_id = told.get("connection_id", "")
        self.limits = told.get("limits", {})

    async def _keep(self) -> None:
        while True:
            assert self._connection is not None
            gone = await self._connection.ended()
            self._up.clear()
            self._serving.lost()
            self._made.lost(gone)
            if not self._reconnect or not gone.come_back or self._closed:
                self._over(gone)
                return
            try:
                await self._come_back((gone.retry_after_ms or 0) / 1000)
            except TielineError as exc:  # such as a token that is not good any more
                self._over(exc if isinstance(exc, Disconnected) else Disconnected(4500, exc.message))
                return

    async def _come_back(self, wait: float) -> None:
        """Connect again, join every log where it was, register every remote. Raises what makes that pointless."""
        growing = FIRST_WAIT
        while True:
            await asyncio.sleep(wait + growing * random.random())
            wait, growing = 0.0, min(growing * 2, MOST_WAIT)
            try:
                connection = await self._dial()
            except Disconnected as exc:
                if not exc.come_back:
                    raise
                continue
            except TielineError as exc:
                if exc.code in ("unauthorized", "bad_request"):
                    raise
                continue
            try:
                await self._resume(connection)
            except Disconnected:
                continue
            self._connection = connection
            self._up.set()
            return

    async def _resume(self, connection: Connection) -> None:
        for served in self._serving.wanted:
            try:
                served._registered(await insist(connection, "remote-connect", served._registration()))
            except Disconnected:
                raise
            except TielineError as exc:
                served._refused(exc)
        for subscription in self._watching.subscriptions:
            try:
                await insist(connection, *subscription._joining(), subscription._begin)
            except Disconnected:
                raise
            except TielineError as exc:
                self._watching.forget(subscription)
                subscription._finish(exc)

    # What is heard

    def _heard(self, frame: Frame, size: int) -> bool:
        listened = self._watching.heard(frame, size)
        return self._serving.heard(frame) or self._made.heard(frame) or listened

    def _over(self, gone: Disconnected) -> None:
        self._end = gone
        self._up.set()  # whoever waits for a connection hears that there will be none
        self._watching.finish(gone)
