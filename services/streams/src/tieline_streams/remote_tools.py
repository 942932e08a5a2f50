"""The user's remotes as the coding agent's tools: what the agent is offered, and its calls.

Only the remotes that were named when the session was opened, and only those of the session's user.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import structlog
from tieline_protocol import calling, tracing
from tieline_protocol.backoff import delays
from tieline_protocol.bus import Bus
from tieline_protocol.errors import Code, Refused, TielineError, Unavailable
from tieline_protocol.naming import Pair

from tieline_streams import plugin_tools

log = structlog.get_logger()

LIST_WITHIN = 1.5  # s: the daemon waits 2, and its agent with it
_AT_ONCE = 64


class RemoteTools:
    """Of one session. `generation` is another one for each of its owners."""

    def __init__(self, bus: Bus, user: str, remotes: Sequence[str], generation: int) -> None:
        self._bus = bus
        self._user = user
        self._remotes = tuple(dict.fromkeys(remotes))
        self._snapshots = plugin_tools.Snapshots(generation)
        self._calls: set[asyncio.Timeout] = set()
        self._cancelled = ""

    async def listed(self, payload: dict[str, Any]) -> dict[str, Any]:
        """The answer to `mcp.list_plugin_tools`; without the remotes service there are none, in time."""
        offered, dropped = plugin_tools.tools(await self._resolve(), payload.get("surface"))
        if dropped:
            log.info("an agent is not offered all functions", user=self._user, dropped=len(dropped))
        return self._snapshots.of(offered)

    async def _resolve(self) -> list[dict[str, Any]]:
        if not self._remotes:
            return []
        try:
            async with asyncio.timeout(LIST_WITHIN):
                found = await self._found()
        except (TielineError, TimeoutError) as exc:
            log.warning(
                "an agent is offered no remotes", user=self._user, error=str(exc) or "no answer in time"
            )
            return []
        if found["missing"]:
            log.info("remotes of a session are not connected", user=self._user, missing=found["missing"])
        remotes: list[dict[str, Any]] = found["remotes"]
        return remotes

    async def _found(self) -> dict[str, Any]:
        # Asking changes nothing, so it is asked again: replicas come and go.
        for wait in delays(random.random, 0.05, 0.4):
            try:
                return await calling.resolve(self._bus, self._user, list(self._remotes), LIST_WITHIN)
            except Unavailable:
                await asyncio.sleep(wait)
        raise AssertionError("the delays never end")

    async def invoked(self, payload: dict[str, Any], asked_by: str | None = None) -> dict[str, Any]:
        """The answer to `mcp.invoke_plugin_tool`; a call that fails is one too. `asked_by`: a traceparent."""
        try:
            pair, arguments = plugin_tools.invocation(payload, self._remotes)
            if len(self._calls) >= _AT_ONCE:
                raise Refused(Code.BUSY, f"{_AT_ONCE} calls are under way already")
            with tracing.begin(f"execute_tool {pair.function}", attributes=_told(pair), parent=asked_by):
                return plugin_tools.succeeded(await self._call(pair.remote, pair.function, arguments))
        except TielineError as exc:
            return plugin_tools.failed(exc)

    async def _call(self, remote: str, function: str, arguments: Any) -> Any:
        try:
            async with asyncio.timeout(None) as call:
                self._calls.add(call)
                try:
                    return await calling.call(
                        self._bus, self._user, remote, function, arguments, traceparent=tracing.current()
                    )
                finally:
                    self._calls.discard(call)
        except TimeoutError as exc:
            raise Refused(Code.CANCELLED, self._cancelled) from exc

    def cancel(self, reason: str) -> None:
        """End the calls that are under way."""
        self._cancelled = reason
        calls, self._calls = self._calls, set()
        for call in calls:
            call.reschedule(asyncio.get_running_loop().time())


def _told(pair: Pair) -> dict[str, str]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": pair.function,
        "gen_ai.tool.type": "function",
        "tieline.remote.name": pair.remote,
        "tieline.remote.function": pair.function,
    }
