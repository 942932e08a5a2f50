"""The sessions that this process owns, from the write that took each to its end: served, watched over, handed over.

How one begins: opening.py (it is new), takeover.py (another process had it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog
from tieline_protocol import logs, subjects, tracing
from tieline_protocol.bus import Server
from tieline_protocol.errors import TielineError, Unavailable
from tieline_protocol.messages import OwnerRecord

from tieline_streams.commands import Commands, Unowned
from tieline_streams.findings import Findings
from tieline_streams.left import Left
from tieline_streams.ownership import Parts
from tieline_streams.session import Session

log = structlog.get_logger()

_QUIETLY = 5.0  # s that commands wait for an owner that is still finding out
_LAST_COMMANDS = 0.3
_COUNTING = 0.1  # s for which sockets are still read, and nothing of it used, once the lease has expired
_COMMANDS = 8_192  # requests at once that a session takes in: a thousand keys typed ahead are one burst


class Lives:
    """`unowned` answers for a session that has ended. The tasks belong to `group`."""

    def __init__(self, parts: Parts, group: asyncio.TaskGroup, unowned: Mapping[str, Unowned]) -> None:
        self._parts = parts
        self._group = group
        self._unowned = unowned
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._servers: dict[str, Server] = {}
        self._findings = Findings(parts.bus, group)
        self.sessions: dict[str, Session] = {}
        self.making: set[str] = set()  # begun here, and not owned yet
        self.left: dict[str, Left] = {}  # of sessions that were ours until the lease expired
        self.stopping = False

    def here(self, id: str) -> bool:
        """Whether a session is this process's business already."""
        return id in self.sessions or id in self.making

    def owned(self, id: str) -> bool:
        """Whether a session is owned here and has not ended."""
        session = self.sessions.get(id)
        return session is not None and not session.finished.is_set()

    def begin(self, session: Session, epoch: int) -> None:
        """It is ours since the write whose revision is `epoch`."""
        self.sessions[session.id] = session
        life = self._group.create_task(self._live(session, epoch), name=f"own {session.id}")
        self._tasks[session.id] = life

    async def _live(self, session: Session, epoch: int) -> None:
        logs.about(user=session.user, session=session.id)
        tracing.apart()
        running = asyncio.create_task(session.run(), name=f"session {session.id}")
        try:
            if session.taken:  # whoever asks before it can be answered asks again
                ready = asyncio.create_task(session.ready.wait(), name=f"ready {session.id}")
                await asyncio.wait((running, ready), timeout=_QUIETLY, return_when=asyncio.FIRST_COMPLETED)
                ready.cancel()
            server = await self._serve(session)
            self._servers[session.id] = server
            try:
                await running
            finally:
                await server.refuse()
                session.gone.set()
                await server.close()
        except Exception as exc:  # one session's trouble, even a mistake of ours, is not the others'
            log.exception("a session broke", session=session.id, error=repr(exc))
            await self.abandon(session.id, epoch)
        finally:
            session.cut()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            session.gone.set()
            if session.tenure.lost:
                nothing_else = not session.unused.total()
                self.left[session.id] = Left(session.journal, session.tenure, epoch, all=nothing_else)
            else:
                session.journal.forget()
            if session.unused.total():
                self._findings.report(session.user, session.id, session.unused)
            session.opened.close(Unavailable("the session could not be opened"))
            del self.sessions[session.id], self._tasks[session.id]
            self._servers.pop(session.id, None)

    async def _serve(self, session: Session) -> Server:
        subject = subjects.commands(session.user, session.id)
        handle = Commands(session, self._unowned).handle
        while True:
            try:
                return await self._parts.bus.serve(subject, handle, limit=_COMMANDS)
            except Unavailable:
                await self._parts.bus.wait_connected()

    async def abandon(self, id: str, epoch: int) -> None:
        """Whoever looks next may take it, and says that it was not given up in order."""
        try:
            await self._parts.owners.put(id, OwnerRecord(holder="").encode(), expected=epoch)
        except TielineError as exc:
            log.warning("a session could not be given up", session=id, error=exc.message)

    def stop_opening(self) -> None:
        """Whoever waits for a session to open is told now, and what was begun is undone."""
        self.stopping = True
        for session in self.sessions.values():
            if not session.taken and not session.opened.done():
                session.end("failed", "the service stopped while the session opened")

    async def hand_over(self) -> None:
        """Give every session up, in order."""
        self.stopping = True
        log.info("giving sessions up", sessions=len(self.sessions))
        await asyncio.gather(*(self._hand_over(session) for session in list(self.sessions.values())))
        self._findings.close()

    async def _hand_over(self, session: Session) -> None:
        """Hear no more commands, let those that came be answered, then give it up."""
        server = self._servers.get(session.id)
        if session.state == "opening":
            session.end("failed", "the service stopped while the session opened")
        if server is not None:
            await server.refuse()
            until = self._loop.time() + _LAST_COMMANDS
            while server.in_flight and self._loop.time() < until:
                await asyncio.sleep(0.01)
        session.end("released")

    async def drop(self) -> None:
        """The lease has certainly expired: use and write nothing any more."""
        lives = [(session, self._tasks[session.id]) for session in self.sessions.values()]
        for session, _ in lives:
            session.tenure.lost = True
        if lives:
            await asyncio.sleep(_COUNTING)  # what waited in the sockets while this process slept
        for session, life in lives:
            session.cut()
            life.cancel()
