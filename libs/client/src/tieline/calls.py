"""The calls that a client makes of functions which others serve: from the request to the one end of each."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from tieline.connection import Told
from tieline.errors import Disconnected, TielineError
from tieline.frames import Frame

OnProgress = Callable[[dict[str, Any]], None]

_SLACK = 15.0  # s beyond a call's own time within which its end is told


class Ask(Protocol):
    """A request; `told` gets the answer where it is read. Raises TielineError."""

    def __call__(self, action: str, payload: dict[str, Any], *, told: Told) -> Awaitable[dict[str, Any]]: ...


class _Call:
    __slots__ = ("end", "given_up", "id", "on_progress")

    def __init__(self, on_progress: OnProgress | None) -> None:
        self.id = ""
        self.end: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.on_progress = on_progress
        self.given_up = False


class MadeCalls:
    """By requestId."""

    def __init__(self, ask: Ask, notify: Callable[[str, dict[str, Any]], Awaitable[None]]) -> None:
        self._ask = ask
        self._notify = notify
        self._calls: dict[str, _Call] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many have an id and no end yet."""
        return len(self._calls)

    async def call(self, payload: dict[str, Any], seconds: float, on_progress: OnProgress | None) -> Any:
        """The result. Raises TielineError. Cancelling the task that awaits this cancels the call, whatever it is at."""
        call = _Call(on_progress)
        asking = asyncio.create_task(self._begin(payload, call), name="ask for a remote call")
        self._asking.add(asking)
        asking.add_done_callback(self._asked)
        try:
            await asyncio.shield(asking)
            async with asyncio.timeout(seconds + _SLACK):
                told = await call.end
        except TimeoutError as exc:
            raise TielineError("timeout", "the end of the call was not told") from exc
        except asyncio.CancelledError:
            call.given_up = True
            if asking.done():
                await self._give_up(call)
            raise
        finally:
            self._calls.pop(call.id, None)
        if "error" in told:
            raise TielineError(str(told.get("code", "internal")), str(told["error"]))
        return told.get("result")

    async def _begin(self, payload: dict[str, Any], call: _Call) -> None:
        await self._ask("remote-call", payload, told=functools.partial(self._begun, call))
        if call.given_up:
            await self._give_up(call)

    def _begun(self, call: _Call, answer: dict[str, Any]) -> None:
        call.id = str(answer.get("requestId", ""))
        if not call.given_up:
            self._calls[call.id] = call

    def _asked(self, asking: asyncio.Task[None]) -> None:
        self._asking.discard(asking)
        if not asking.cancelled():
            asking.exception()  # whoever gave the call up does not want to know

    async def _give_up(self, call: _Call) -> None:
        with contextlib.suppress(Disconnected):
            await self._notify("remote-call-cancel", {"requestId": call.id})

    def heard(self, frame: Frame) -> bool:
        """Something came. Whether it was about a call; one that nobody waits for means nothing."""
        call = self._calls.get(frame.payload.get("requestId", ""))
        match frame.action:
            case "remote-call-progress":
                if call is not None and call.on_progress is not None:
                    call.on_progress(frame.payload)
            case "remote-call-result":
                if call is not None and not call.end.done():
                    call.end.set_result(frame.payload)
            case _:
                return False
        return True

    def lost(self, gone: Disconnected) -> None:
        """Nobody will hear how they end: that goes to the socket which asked."""
        for call in self._calls.values():
            if not call.end.done():
                call.end.set_exception(gone)

    async def close(self) -> None:
        """Wait for what was asked: it ends with the connection."""
        if self._asking:
            await asyncio.wait(self._asking)
