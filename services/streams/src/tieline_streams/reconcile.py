"""What a socket that was away has missed: what the daemon says now against what was published.

The difference becomes events. The daemon itself says how git is, at each connect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from tieline_protocol import jsontext
from tieline_protocol.errors import Code, Refused, TielineError

from tieline_streams.dialling import Fatal
from tieline_streams.journal import Journal
from tieline_streams.line import RUNNING, Line, exit_code
from tieline_streams.ownership import Place
from tieline_streams.turn import Due

log = structlog.get_logger()

_AGAIN = 1.0
_WITHIN = 10.0
_SHELL_WITHIN = 3.0
_TRIES = 5


class Reconciler:
    """`run` is its work; `up` and `due` may be called from callbacks.

    `broken` is told that the instance is gone, `exited` that the agent has ended, and with which code. While a socket
    is down, whether there is an instance is asked every `slow` seconds.
    """

    def __init__(
        self,
        session: str,
        journal: Journal,
        place: Place | None,
        broken: Callable[[str], None],
        exited: Callable[[int | None], Awaitable[None]],
        slow: float,
    ) -> None:
        self._session = session
        self._journal = journal
        journal.on_due = self.due
        self._place = place
        self._broken = broken
        self._exited = exited
        self._slow = slow
        self._asking: asyncio.TimerHandle | None = None  # whether the instance is there
        self._wake = asyncio.Event()
        self._due: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self.active = False  # a session that is just being opened has missed nothing
        self.line: Line | None = None
        self._work: dict[str, Callable[[Line], Awaitable[None]]] = {
            "agent": self._agent,
            "workspace": self._workspace,
            "instance": self._instance,
            "silence": self._silence,
            "cancel": self._cancel,
        }

    def up(self, what: str) -> None:
        """One of the sockets has connected; `instance`: it is not certain that there is anything to connect to."""
        if what == "workspace":  # also the first time: a shell speaks before anybody can listen to it
            self._journal.hold_shell()
            if self._journal.processes:
                self._journal.output_missed()
        if self.active or what != "agent":
            self._due.add(what)
            self._wake.set()

    def due(self, due: Due) -> None:
        """Time has brought a question to the daemon, or the end of its turn."""
        if not self.active:
            return
        self._due.update([*(["silence"] if due.ask else []), *(["cancel"] if due.cancel else [])])
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            for what in sorted(self._due):
                self._due.discard(what)
                try:
                    if self.line is not None:
                        await self._work[what](self.line)
                except Fatal as exc:
                    self._broken(exc.message)
                except TielineError as exc:
                    log.info(
                        "a session could not be compared", session=self._session, what=what, error=exc.message
                    )
                    if self._still(what):
                        self._loop.call_later(_AGAIN, self._again, what)

    def _still(self, what: str) -> bool:
        stream = "agent" if what == "silence" else what
        manager = self.line.manager if self.line is not None else None
        return manager is not None and manager.states().get(stream) == "up"

    def _again(self, what: str) -> None:
        self._due.add(what)
        self._wake.set()

    async def _instance(self, line: Line) -> None:
        record, place = line.record, self._place
        if record is None or place is None:
            return
        if self._asking is not None:
            self._asking.cancel()  # both sockets say that they are down
        # Whoever could tell may be away as well now; and an instance that is there may be gone later.
        if self._down():
            self._asking = self._loop.call_later(self._slow, self._again, "instance")
        if await place.executor.exists(record, self._session) is False:
            self._broken("the instance is gone")

    def _down(self) -> bool:
        manager = self.line.manager if self.line is not None else None
        return manager is not None and "down" in manager.states().values()

    async def _agent(self, line: Line) -> None:
        await self._turns(line, reconnected=True)

    async def _silence(self, line: Line) -> None:
        await self._turns(line, reconnected=False)

    async def _turns(self, line: Line, *, reconnected: bool) -> None:
        journal = self._journal
        about = journal.turns.unsettled()
        status = await line.status()
        now = self._loop.time()
        if status.get("agent_status") not in RUNNING:
            await self._exited(exit_code(status))
            return
        generation = status.get("prompt_generation")
        if "busy" in status and isinstance(generation, int):
            busy = bool(status["busy"])
            journal.tell(journal.turns.asked(about, generation, busy, now, reconnected=reconnected))
            journal.wake()
        await self._permissions(line)

    async def _cancel(self, line: Line) -> None:
        assert line.manager is not None
        await line.manager.send_stream_request("agent.cancel", None, _WITHIN)

    async def _permissions(self, line: Line) -> None:
        permissions = self._journal.permissions
        assert line.manager is not None
        for _ in range(_TRIES):
            before = permissions.items()
            try:
                listed = await line.manager.send_stream_request("agent.permissions.list", None, _WITHIN)
            except Refused as exc:
                if exc.code is Code.UNKNOWN_ACTION:
                    return
                raise
            if permissions.items() != before:
                continue  # it changed while it was asked about
            if permissions.listed(_objects(listed.get("permissions"))):
                self._journal.permissions_changed()
            return

    async def _workspace(self, line: Line) -> None:
        try:
            await self._shell(line)
        finally:
            self._journal.release_shell(None)
        if not self.active:
            return
        processes = self._journal.processes
        assert line.instance is not None
        for _ in range(_TRIES):
            before = processes.items()
            known = {item["process_id"] for item in before}
            body = await line.instance.call("process.list", {"session_id": self._session}, _WITHIN)
            if processes.items() != before:
                continue
            if processes.listed(_objects(jsontext.loads(body).get("processes"))):
                if not known.issuperset(item["process_id"] for item in processes.items()):
                    self._journal.output_missed()
                self._journal.workspace.say(processes.event())
            return

    async def _shell(self, line: Line) -> None:
        assert line.instance is not None
        try:
            body = await line.instance.call("scrollback", {}, _SHELL_WITHIN)
        except Refused:  # there is no shell
            return
        data = jsontext.loads(body).get("data")
        if isinstance(data, str):
            if line.manager is not None:  # this answer may have overtaken what it repeats
                await line.manager.heard_workspace(_SHELL_WITHIN)
            self._journal.release_shell(data)


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
