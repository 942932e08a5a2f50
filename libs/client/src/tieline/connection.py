"""One socket to a gateway: requests and their answers, and what comes without being asked.

When it is lost, everything that waits raises Disconnected; whoever owns it connects again (client.py).
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from tieline import frames
from tieline.errors import Disconnected, TielineError
from tieline.frames import Frame

TIMEOUT = 75.0  # session.open may take 60 s
FIRST_WAIT, MOST_WAIT = 0.1, 10.0
_PASSING = ("unavailable", "timeout", "busy", "rate_limited")  # answered while something is away
_MAX_FRAME = 32 * 1024 * 1024  # above the largest event (7 MiB) and answer (5 MB), escapes included

Heard = Callable[[Frame, int], bool]
Told = Callable[[dict[str, Any]], None]


class Connection:
    """Made by `dial`. `heard` gets notifications and the server's requests, with their size in bytes.

    It returns whether it knows the action: a request is answered so. `lost` is called before anybody who waits
    hears that the connection is gone.
    """

    def __init__(self, socket: ClientConnection, heard: Heard, lost: Callable[[], None]) -> None:
        self._socket = socket
        self._lost = lost
        self._heard = heard
        self._ids = itertools.count(1)
        self._pending: dict[str, tuple[asyncio.Future[dict[str, Any]], Told | None]] = {}
        self._gone: Disconnected | None = None
        self._reader = asyncio.create_task(self._read(), name="tieline connection")

    @property
    def pending(self) -> int:
        """Requests without an answer yet."""
        return len(self._pending)

    async def request(
        self,
        action: str,
        payload: dict[str, Any],
        timeout: float,
        told: Told | None = None,
        traceparent: str | None = None,
    ) -> dict[str, Any]:
        """The answer's payload. Raises TielineError with the server's code, `timeout`, or Disconnected.

        `told` gets it before anything is heard that the server said after it; whoever awaits it may be late.
        `traceparent`: what it is a part of.
        """
        if self._gone is not None:
            raise self._gone
        id = str(next(self._ids))
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending[id] = (future, told)
        try:
            async with asyncio.timeout(timeout):
                await self._send(Frame("request", action, payload, id, traceparent))
                return await future
        except TimeoutError as exc:
            raise TielineError("timeout", f"no answer to {action} within {timeout:g} s") from exc
        finally:
            del self._pending[id]
            if future.done() and not future.cancelled():
                future.exception()  # seen: the sending may have failed first

    async def notify(self, action: str, payload: dict[str, Any]) -> None:
        """Say something that is not answered. Raises Disconnected."""
        await self._send(Frame("notification", action, payload))

    async def ended(self) -> Disconnected:
        """Wait until the connection is lost or closed; why."""
        await asyncio.wait([self._reader])
        return self._gone or Disconnected()

    async def close(self) -> None:
        await self._socket.close()
        await asyncio.wait([self._reader])

    async def _send(self, frame: Frame) -> None:
        try:
            await self._socket.send(frames.encode(frame), text=True)
        except ConnectionClosed as exc:
            raise self._gone or _why(exc) from exc

    async def _read(self) -> None:
        gone = Disconnected()
        try:
            while True:
                text = await self._socket.recv(decode=False)
                frame = frames.decode(text)
                if frame is None:
                    continue
                if frame.kind in ("response", "error"):
                    self._answered(frame)
                else:
                    known = self._heard(frame, len(text))
                    if frame.kind == "request":
                        await self._send(_reply(frame, known))
        except ConnectionClosed as exc:
            gone = _why(exc)
        except Disconnected as exc:
            gone = exc
        finally:
            self._gone = gone
            self._lost()
            for future, _ in self._pending.values():
                if not future.done():
                    future.set_exception(gone)

    def _answered(self, frame: Frame) -> None:
        future, told = self._pending.get(frame.id or "", (None, None))
        if future is None or future.done():
            return
        if frame.kind == "error":
            future.set_exception(frames.error(frame.payload))
        else:
            if told is not None:
                told(frame.payload)
            future.set_result(frame.payload)


async def dial(
    url: str, origin: str | None, timeout: float, heard: Heard, lost: Callable[[], None]
) -> Connection:
    """A new connection, not authenticated yet. Raises TielineError (unavailable)."""
    try:
        socket = await connect(
            url,
            origin=origin,  # type: ignore[arg-type]  # a NewType of str
            compression=None,
            max_size=_MAX_FRAME,
            max_queue=64,
            open_timeout=timeout,
            close_timeout=2,
            proxy=None,
        )
    except (OSError, TimeoutError, InvalidHandshake, InvalidURI, EOFError) as exc:
        raise TielineError("unavailable", f"cannot connect to {url}: {exc}") from exc
    return Connection(socket, heard, lost)


async def insist(
    connection: Connection, action: str, payload: dict[str, Any], told: Told | None = None
) -> dict[str, Any]:
    """Ask until what is away is back: the connection came back, and what is behind it will."""
    wait = FIRST_WAIT
    while True:
        try:
            return await connection.request(action, payload, TIMEOUT, told)
        except TielineError as exc:
            if exc.code not in _PASSING:
                raise
        await asyncio.sleep(wait * (1 + random.random()))
        wait = min(wait * 2, MOST_WAIT)


def _reply(frame: Frame, known: bool) -> Frame:
    if known:
        return Frame("response", frame.action, {}, frame.id)
    refusal = {"code": "unknown_action", "message": f"this client serves no {frame.action!r}"}
    return Frame("error", frame.action, refusal, frame.id)


def _why(exc: ConnectionClosed) -> Disconnected:
    if exc.rcvd is None:
        return frames.disconnected(None, "")
    return frames.disconnected(exc.rcvd.code, exc.rcvd.reason)
