"""A thread that this process owns, from the taking of its key to its release, and what its owner is asked to do.

Its runs: runs.py. Which threads are owned: threads.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from tieline_protocol import jetstream, logs, ownership, subjects, tracing
from tieline_protocol.answers import Answers
from tieline_protocol.bus import Received, Server
from tieline_protocol.errors import Code, ProtocolError, Refused, TielineError, TimedOut, Unavailable
from tieline_protocol.messages import Request, ThreadRecord, answer, refusal
from tieline_protocol.tracing import Span

from tieline_agent import log, payloads, thread
from tieline_agent.log import ThreadLog
from tieline_agent.parts import Parts
from tieline_agent.runs import Runs
from tieline_agent.thread import RunState, Thread

MESSAGE, CANCEL, DELETE = "thread.message", "thread.cancel", "thread.delete"

_SETTLE = 10.0
_LAST_COMMANDS = 2.0


class OwnedThread:
    """`epoch` is the revision of the write that took the thread. `run` is its life."""

    def __init__(self, parts: Parts, record: ThreadRecord, epoch: int, clean: bool) -> None:
        self.id, self.user = record.thread, record.user
        self.finished = asyncio.Event()
        self._parts, self._epoch, self._clean = parts, epoch, clean
        config = parts.config
        self._log = ThreadLog(
            parts.log_bus,
            self.user,
            self.id,
            epoch,
            event_bytes=config.event_bytes,
            bound=config.backlog_bytes,
            may_act=parts.lease.may_act,
        )
        self._runs = Runs(parts, record, Thread(self.id), self._log)
        self._opened = asyncio.Event()  # commands may come
        self._leaving = self._deleted = False
        self._answers = Answers()
        self._in_flight = 0
        self._quiet = asyncio.Event()  # no command is in flight
        self._quiet.set()

    @property
    def open(self) -> list[RunState]:
        """The runs that have not ended."""
        return self._runs.open

    # Life

    async def run(self) -> None:
        """From the opening to the release. Raises Lost, and whatever else went wrong: then it is not released."""
        publishing = asyncio.create_task(self._log.run(), name=f"log of {self.id}")
        living = asyncio.create_task(self._live(), name=f"thread {self.id}")
        try:
            await asyncio.wait((publishing, living), return_when=asyncio.FIRST_COMPLETED)
            if publishing.done():
                publishing.result()  # it never ends by itself: this raises
            await living
        finally:
            for task in (living, publishing):
                task.cancel()
            await asyncio.gather(living, publishing, return_exceptions=True)
            self._runs.close()
            self.finished.set()

    async def _live(self) -> None:
        await self._open()
        while True:
            server = await self._serve()
            try:
                await self._work()
            finally:
                self._opened.clear()
                await server.close()  # whoever asks now is not heard, and asks a replica to take the thread
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), _LAST_COMMANDS)
            if self._leaving or not self._runs.open:
                break
        async with asyncio.timeout(_SETTLE):
            await self._log.settled()
            await ownership.release(self._parts.owners, self.id, self._parts.lease.id, self._epoch)

    async def _open(self) -> None:
        bus = self._parts.bus
        previous, last = await ownership.end_of(bus, self.user, self.id, log.LOG)
        await self._log.open(previous, last, self._clean)
        if previous:  # after the opening: whatever a dead owner stored later does not belong to the log
            self._runs.thread = thread.fold(self.id, await log.read(bus, self.user, self.id))
        if self._runs.open:
            await self._runs.announce()

    async def _serve(self) -> Server:
        server = await self._parts.bus.serve(subjects.commands(self.user, self.id), self._received)
        with contextlib.suppress(Unavailable):
            await self._parts.bus.flush()
        self._opened.set()
        return server

    async def _work(self) -> None:
        working = asyncio.create_task(self._runs.work(), name=f"runs of {self.id}")
        paused = asyncio.create_task(self._runs.paused.wait(), name=f"may {self.id} be left?")
        try:
            await asyncio.wait((working, paused), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            for task in (working, paused):
                task.cancel()
            await asyncio.wait((working, paused))

    async def hand_over(self, patience: float) -> None:
        """Give the thread up at the next step; a run that reaches none within `patience` seconds is cut."""
        self.leave()
        waiting = asyncio.create_task(self.finished.wait(), name=f"end of {self.id}")
        await asyncio.wait((waiting,), timeout=patience)
        self._runs.paused.set()
        await waiting

    def leave(self, *, finish: bool = False) -> None:
        """Begin to give the thread up."""
        self._leaving = True
        self._runs.leave(finish=finish)

    # What is asked

    async def _received(self, received: Received) -> bytes | None:
        """A command; None: stay silent."""
        action = subjects.command_action(received.subject)
        if action == subjects.HEAD:
            may = self._parts.lease.may_act()
            return answer({log.LOG: self._log.head().model_dump()}) if may else None
        try:
            return await self.asked(action, Request.decode(received.data))
        except TielineError as exc:
            return refusal(exc)

    async def asked(self, action: str, request: Request) -> bytes | None:
        """The reply to a command, from whichever way it came; None: this process may not answer (any more)."""
        await self._opened.wait()
        if not self._parts.lease.may_act() or self.finished.is_set():
            return None
        loop = asyncio.get_running_loop()
        if (first := self._answers.get(request.id, loop.time())) is not None:
            return first
        logs.about(user=self.user, thread=self.id)
        attributes = {"rpc.system": "nats", "rpc.method": action, "gen_ai.conversation.id": self.id}
        with tracing.begin(action, "server", attributes, parent=request.traceparent) as span:
            return await self._answered(action, request, span)

    async def _answered(self, action: str, request: Request, span: Span) -> bytes:
        loop = asyncio.get_running_loop()
        self._in_flight += 1
        self._quiet.clear()
        try:
            async with asyncio.timeout(max(request.budget_ms, 0) / 1000 + 0.5):
                reply = answer(await self._do(action, request))
        except TimeoutError:
            span.fail(Code.TIMEOUT)
            return refusal(TimedOut(f"{action} took longer than {request.budget_ms} ms"))
        except TielineError as exc:
            span.fail(exc.code, exc.message)
            return refusal(exc)
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._quiet.set()
        self._answers.put(request.id, reply, loop.time())
        return reply

    async def _do(self, action: str, request: Request) -> dict[str, Any]:
        if request.user != self.user or self._deleted:
            raise Refused(Code.NOT_FOUND, "there is no such thread")
        if request.payload.get("thread_id", self.id) != self.id:
            raise ProtocolError("thread_id: not the thread that was asked")
        payload = {**request.payload, "thread_id": self.id}
        if action == MESSAGE:
            return await self._message(payloads.read(payloads.Message, payload), request)
        if action == CANCEL:
            return await self._cancel(payloads.read(payloads.Cancel, payload))
        if action == DELETE:
            return await self._delete()
        raise Refused(Code.UNKNOWN_ACTION, f"unknown action: {action}")

    async def _message(self, wanted: payloads.Message, request: Request) -> dict[str, Any]:
        answered = await self._runs.received(wanted, request.id, tracing.current())
        with contextlib.suppress(TielineError):  # it only says when the thread was used last
            await self._parts.records.change(self.user, self.id)
        return dict(answered)

    async def _cancel(self, wanted: payloads.Cancel) -> dict[str, Any]:
        """End one run, or every run that is open."""
        if wanted.run_id is not None and wanted.run_id not in self._runs.thread.runs:
            raise Refused(Code.NOT_FOUND, "there is no such run")
        await self._runs.stop([run for run in self._runs.open if wanted.run_id in (None, run.run_id)])
        return {"state": "ended"}

    async def _delete(self) -> dict[str, Any]:
        self._deleted = True
        self.leave(finish=True)
        await self._runs.stop(self._runs.open)
        subject = subjects.log_events(self.user, self.id, log.LOG)
        await jetstream.purge(self._parts.bus, subjects.stream_of(log.LOG), subject)
        await self._parts.records.delete(self.user, self.id)
        return {}
