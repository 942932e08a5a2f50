"""A thread that this process owns: its runs one after the other, and what its owner is asked to do.

From the taking of its key to its release. Runs are worked on in the order of the log; a message that comes meanwhile
is written at once and waits for its turn. How a run goes: expert.py. Which threads are owned: threads.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any, Literal

import structlog
from tieline_protocol import jetstream, ownership, subjects
from tieline_protocol.answers import Answers
from tieline_protocol.bus import Bus, Received
from tieline_protocol.errors import Code, ProtocolError, Refused, TielineError, TimedOut, Unavailable
from tieline_protocol.jetstream import Bucket
from tieline_protocol.leases import ProcessLease
from tieline_protocol.messages import Request, ThreadRecord, answer, refusal

from tieline_agent import events, log, payloads, results, thread
from tieline_agent.agent import Agent
from tieline_agent.assembly import Usage
from tieline_agent.config import Config
from tieline_agent.events import Event
from tieline_agent.log import ThreadLog
from tieline_agent.metrics import RUNS, TOKENS
from tieline_agent.records import Records
from tieline_agent.thread import RunState, Thread

logger = structlog.get_logger()

_MOST_WAITING = 64  # messages that wait for their turn in one thread
_POLL = 0.05
_SETTLE = 10.0
_LAST_COMMANDS = 2.0
MESSAGE, CANCEL, DELETE = "thread.message", "thread.cancel", "thread.delete"

End = Literal["released", "deleted"]


class Lost(Exception):
    """This process is not the owner any more, and must not say so either."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What all threads of a process share. Their logs have a connection of their own."""

    config: Config
    bus: Bus
    log_bus: Bus
    records: Records
    owners: Bucket
    lease: ProcessLease
    agent: Agent


class OwnedThread:
    """`epoch` is the revision of the write that took the thread. `run` is its life."""

    def __init__(self, parts: Parts, record: ThreadRecord, epoch: int, clean: bool) -> None:
        self.id, self.user = record.thread, record.user
        self.finished = asyncio.Event()
        self._parts, self._record, self._epoch, self._clean = parts, record, epoch, clean
        config = parts.config
        self._log = ThreadLog(
            parts.log_bus, self.user, self.id, epoch, config.event_bytes, config.backlog_bytes
        )
        self._thread = Thread(self.id)
        self._opened = asyncio.Event()  # commands may come
        self._kick = asyncio.Event()
        self._idle = asyncio.Event()  # the worker is at a place where it may be stopped
        self._end: End | None = None
        self._writing = asyncio.Lock()  # of messages, and of the key that says that there is something to do
        self._open_revision: int | None = None
        self._current: tuple[str, asyncio.Event] | None = None
        self._unwanted: set[str] = set()
        self._ended: dict[str, asyncio.Future[None]] = {}
        self._answers = Answers()
        self._in_flight = 0
        self._quiet = asyncio.Event()  # no command is in flight
        self._quiet.set()

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
            for ended in self._ended.values():
                if not ended.done():
                    ended.set_exception(Unavailable("somebody else goes on with this thread, try again"))
                    ended.exception()  # nobody may be waiting for it any more
            self.finished.set()

    async def _live(self) -> None:
        await self._open()
        while True:
            server = await self._serve()
            try:
                await self._work_until_idle()
            finally:
                self._opened.clear()
                await server.close()  # whoever asks now is not heard, and asks a replica to take the thread
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), _LAST_COMMANDS)
            if self._end is not None or self._thread.next_run() is None:
                break
        async with asyncio.timeout(_SETTLE):
            await self._log.settled()
            await ownership.release(self._parts.owners, self.id, self._parts.lease.id, self._epoch)

    async def _open(self) -> None:
        bus = self._parts.bus
        previous, last = await ownership.end_of(bus, self.user, self.id, log.LOG)
        await self._log.open(previous, last, self._clean)
        if previous:  # after the opening: whatever a dead owner stored later does not belong to the log
            self._thread = thread.fold(self.id, await log.read(bus, self.user, self.id))
        if self._thread.next_run() is not None:
            self._open_revision = await self._parts.records.opened(self.user, self.id)

    async def _serve(self) -> Any:
        server = await self._parts.bus.serve(subjects.commands(self.user, self.id), self._received)
        with contextlib.suppress(Unavailable):
            await self._parts.bus.flush()
        self._opened.set()
        return server

    async def _work_until_idle(self) -> None:
        working = asyncio.create_task(self._work(), name=f"runs of {self.id}")
        idle = asyncio.create_task(self._idle.wait(), name=f"is {self.id} idle?")
        try:
            await asyncio.wait((working, idle), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            for task in (working, idle):
                task.cancel()
            await asyncio.wait((working, idle))

    async def hand_over(self, patience: float) -> None:
        """Give the thread up at the next step; a run that reaches none within `patience` seconds is cut."""
        self._end = self._end or "released"
        self._kick.set()
        waiting = asyncio.create_task(self.finished.wait(), name=f"end of {self.id}")
        await asyncio.wait((waiting,), timeout=patience)
        self._idle.set()
        await waiting

    # Work

    async def _work(self) -> None:
        while True:
            run_id = self._thread.next_run()
            if run_id is not None and self._end != "released":
                await self._run(run_id)
                continue
            if self._end is None or run_id is None:
                await self._nothing_to_do()
            if self._end is not None:
                return
            try:
                async with asyncio.timeout(self._parts.config.idle):
                    await self._kick.wait()
            except TimeoutError:
                return
            self._kick.clear()

    async def _nothing_to_do(self) -> None:
        async with self._writing:
            if self._open_revision is not None and self._thread.next_run() is None:
                await ownership.insist(self._done)

    async def _done(self) -> None:
        await self._parts.records.done(self.id, self._open_revision)
        self._open_revision = None

    async def _run(self, run_id: str) -> None:
        parts, record = self._parts, self._record
        cancelled = asyncio.Event()
        if run_id in self._unwanted:
            cancelled.set()
        self._current = (run_id, cancelled)
        try:
            await parts.agent.received_message(
                self.user,
                self._thread,
                run_id,
                self._record_event,
                cancelled,
                model=record.model,
                instructions=record.instructions or parts.config.instructions,
            )
        except Exception as exc:
            if isinstance(exc, Lost) or (isinstance(exc, ExceptionGroup) and exc.subgroup(Lost)):
                raise Lost from exc
            logger.exception("a run broke", thread=self.id, run=run_id)
            await self._break_off(self._thread.runs[run_id])
        finally:
            self._current = None
        self._unwanted.discard(run_id)
        if (ended := self._ended.pop(run_id, None)) is not None and not ended.done():
            ended.set_result(None)
        run = self._thread.runs[run_id]
        RUNS.labels(reason=run.reason).inc()
        TOKENS.labels(direction="in").inc(run.usage.input_tokens)
        TOKENS.labels(direction="out").inc(run.usage.output_tokens)

    async def _record_event(self, event: Event, *, confirm: bool) -> None:
        """What a run says. Where the thread is being handed over, it stops before a call or the next answer."""
        await self._certain()
        kind = event["type"]
        if kind == "tool_call":
            await self._pause()
        if not confirm:
            await self._log.write(event)
            return
        await self._log.store(event)
        if kind == "tool_result":
            await self._pause()

    async def _pause(self) -> None:
        if self._end == "released":
            self._idle.set()
            await asyncio.Event().wait()

    async def _certain(self) -> None:
        """Wait until it is certain that nobody else owns the thread. Raises Lost."""
        lease = self._parts.lease
        while not lease.may_act():
            if lease.must_close():
                raise Lost
            await asyncio.sleep(_POLL)

    async def _break_off(self, run: RunState) -> None:
        """End a run that we cannot carry out, and everything of it that is open."""
        if run.state == "ended":
            return
        ends: list[Event] = []
        if run.partial is not None:
            ends.append(events.interrupted(run.run_id, run.partial.message_id, "".join(run.partial.pieces)))
        failed = results.failure(Code.INTERNAL, "the run broke")
        calls = run.steps[-1].open_calls if run.steps else []
        ends += [events.tool_result(run.run_id, call.id, failed) for call in calls]
        error = {"code": str(Code.INTERNAL), "message": failed.error or ""}
        ends.append(events.run_ended(run.run_id, "error", run.usage, error))
        for event in ends:
            self._thread.apply(event)
            await self._log.store(event)

    # What is asked

    async def _received(self, received: Received) -> bytes | None:
        """A command; None: stay silent."""
        action = subjects.command_action(received.subject)
        if action == subjects.HEAD:
            return answer({log.LOG: self._log.head().model_dump()}) if self._parts.lease.may_act() else None
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
        self._in_flight += 1
        self._quiet.clear()
        try:
            async with asyncio.timeout(max(request.budget_ms, 0) / 1000 + 0.5):
                reply = answer(await self._do(action, request))
        except TimeoutError:
            return refusal(TimedOut(f"{action} took longer than {request.budget_ms} ms"))
        except TielineError as exc:
            return refusal(exc)
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._quiet.set()
        self._answers.put(request.id, reply, loop.time())
        return reply

    async def _do(self, action: str, request: Request) -> dict[str, Any]:
        if request.user != self.user or self._end == "deleted":
            raise Refused(Code.NOT_FOUND, "there is no such thread")
        if request.payload.get("thread_id", self.id) != self.id:
            raise ProtocolError("thread_id: not the thread that was asked")
        payload = {**request.payload, "thread_id": self.id}
        match action:
            case "thread.message":
                return await self._message(payloads.read(payloads.Message, payload), request.id)
            case "thread.cancel":
                return await self._cancel(payloads.read(payloads.Cancel, payload))
            case "thread.delete":
                return await self._delete()
            case _:
                raise Refused(Code.UNKNOWN_ACTION, f"unknown action: {action}")

    async def _message(self, wanted: payloads.Message, request_id: str) -> dict[str, Any]:
        given = wanted.given()
        named = (
            wanted.client_message_id or f"request {request_id}"
        )  # a request that is repeated has the same id
        async with self._writing:
            answered, said = self._thread.received(named, wanted.content, given)
            if not said:
                await self._log.settled()
                return answered
            waiting = sum(run.state != "ended" for run in self._thread.runs.values())
            if waiting >= _MOST_WAITING:
                raise Refused(Code.BUSY, f"{waiting} messages wait in this thread already, try again")
            if self._open_revision is None:
                self._open_revision = await self._parts.records.opened(self.user, self.id)
            for event in said:
                self._thread.apply(event)
            for event in said[:-1]:
                self._log.say(event)
            self._kick.set()
            await self._log.store(said[-1])
        with contextlib.suppress(TielineError):  # only the order of a list
            await self._parts.records.change(self.user, self.id)
        return answered

    async def _cancel(self, wanted: payloads.Cancel) -> dict[str, Any]:
        """End a run, or every run that is open."""
        runs = self._thread.runs
        if wanted.run_id is not None and wanted.run_id not in runs:
            raise Refused(Code.NOT_FOUND, "there is no such run")
        chosen = list(runs.values()) if wanted.run_id is None else [runs[wanted.run_id]]
        await self._stop([run for run in chosen if run.state != "ended"])
        return {"state": "ended"}

    async def _stop(self, runs: list[RunState]) -> None:
        ends: list[asyncio.Future[None]] = []
        for run in runs:
            if run.state == "queued" and (self._current is None or self._current[0] != run.run_id):
                event = events.run_ended(run.run_id, "cancelled", Usage())
                self._thread.apply(event)
                self._log.say(event)
                RUNS.labels(reason="cancelled").inc()
                continue
            self._unwanted.add(run.run_id)
            if run.run_id not in self._ended:
                self._ended[run.run_id] = asyncio.get_running_loop().create_future()
            ends.append(self._ended[run.run_id])
            if self._current is not None and self._current[0] == run.run_id:
                self._current[1].set()
        self._kick.set()
        for end in ends:
            await asyncio.shield(end)
        await self._log.settled()

    async def _delete(self) -> dict[str, Any]:
        self._end = "deleted"
        await self._stop([run for run in self._thread.runs.values() if run.state != "ended"])
        subject = subjects.log_events(self.user, self.id, log.LOG)
        await jetstream.purge(self._parts.bus, subjects.stream_of(log.LOG), subject)
        await self._parts.records.delete(self.user, self.id)
        return {}
