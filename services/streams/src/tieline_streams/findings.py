"""What a process finds in its sockets after it has lost a session is of no use to it: the session's owner is told how
much that was, and says so in the logs."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping

import structlog
from tieline_protocol import messages, subjects
from tieline_protocol.bus import Bus
from tieline_protocol.errors import Refused, TielineError
from tieline_protocol.messages import Request

log = structlog.get_logger()

_AGAIN = 0.5
_PATIENCE = 60.0  # s: a session that nobody owns by then is not wanted
_ANSWER = 5.0


class Findings:
    """The reports on their way. Their tasks belong to `group`."""

    def __init__(self, bus: Bus, group: asyncio.TaskGroup) -> None:
        self._bus = bus
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()

    def report(self, user: str, session: str, unused: Mapping[str, int]) -> None:
        """`unused`: frames in each of the session's sockets."""
        log.warning("what came for a session was not used", session=session, frames=dict(unused))
        task = self._group.create_task(
            self._report(user, session, dict(unused)), name=f"findings of {session}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _report(self, user: str, session: str, unused: dict[str, int]) -> None:
        subject = subjects.command(user, session, subjects.FOUND)
        request = Request(
            id=secrets.token_hex(8), user=user, budget_ms=int(_ANSWER * 1000), payload=unused
        ).encode()
        try:
            async with asyncio.timeout(_PATIENCE):
                while not await self._told(subject, request):
                    await asyncio.sleep(_AGAIN)
        except TimeoutError:
            log.warning("nobody was told what was found of a session", session=session)

    async def _told(self, subject: str, request: bytes) -> bool:
        """Whether an owner has answered; one that is asked again knows it by the request's id."""
        try:
            messages.outcome((await self._bus.request(subject, request, _ANSWER + 1)).data)
        except Refused as exc:
            log.info("what was found of a session is not told", error=exc.message)
        except TielineError:
            return False
        return True

    def close(self) -> None:
        """The process ends: what nobody has heard by now is not told."""
        for task in self._tasks:
            task.cancel()
