"""The runs of a thread that this process owns: one after the other, in the order of the log.

A message that comes meanwhile is written at once and waits for its turn. How one run goes: expert.py.
"""

from __future__ import annotations

import asyncio

import structlog
from tieline_protocol import ownership
from tieline_protocol.errors import Code, Refused, Unavailable
from tieline_protocol.messages import ThreadRecord

from tieline_agent import events, results
from tieline_agent.assembly import Usage
from tieline_agent.events import Event
from tieline_agent.log import ThreadLog
from tieline_agent.metrics import RUN_SECONDS, RUNS, TOKENS
from tieline_agent.parts import Lost, Parts
from tieline_agent.payloads import Message
from tieline_agent.records import now_ms
from tieline_agent.thread import RunState, Thread

logger = structlog.get_logger()

_MOST_WAITING = 64  # messages that wait for their turn in one thread
_POLL = 0.05


class Runs:
    """`thread` is what the log says. `work` is their task; `paused` is set where it may be stopped without harm."""

    def __init__(self, parts: Parts, record: ThreadRecord, thread: Thread, log: ThreadLog) -> None:
        self.thread = thread
        self.paused = asyncio.Event()
        self._parts, self._owned, self._log = parts, record, log
        self._kick = asyncio.Event()
        self._leaving = False
        self._pausing = False
        self._writing = asyncio.Lock()  # of messages, and of the key that says that there is something to do
        self._open_revision: int | None = None
        self._current: tuple[str, asyncio.Event] | None = None
        self._unwanted: set[str] = set()
        self._ended: dict[str, asyncio.Future[None]] = {}

    @property
    def open(self) -> list[RunState]:
        return [run for run in self.thread.runs.values() if run.state != "ended"]

    # What is wanted

    async def received(
        self, wanted: Message, request_id: str, traceparent: str | None = None
    ) -> dict[str, str]:
        """A message is written; its run follows. One that was heard before has the same answer and no effect."""
        given = wanted.given()
        named = (
            wanted.client_message_id or f"request {request_id}"
        )  # a request that is repeated has the same id
        async with self._writing:
            answered, said = self.thread.received(named, wanted.content, given, traceparent)
            if not said:
                await self._log.settled()
                return answered
            if len(self.open) >= _MOST_WAITING:
                raise Refused(Code.BUSY, f"{_MOST_WAITING} messages wait in this thread already, try again")
            await self.announce()
            for event in said:
                self.thread.apply(event)
            for event in said[:-1]:
                self._log.say(event)
            self._kick.set()
            await self._log.store(said[-1])
        return answered

    async def announce(self) -> None:
        """Have it known that there is something to do, before there is."""
        if self._open_revision is None:
            self._open_revision = await self._parts.records.opened(self._owned.user, self._owned.thread)

    async def stop(self, runs: list[RunState]) -> None:
        """End runs as cancelled; returns once that is stored."""
        ends: list[asyncio.Future[None]] = []
        for run in runs:
            current = self._current is not None and self._current[0] == run.run_id
            if run.state == "queued" and not current:
                event = events.run_ended(run.run_id, "cancelled", Usage())
                self.thread.apply(event)
                self._log.say(event)
                RUNS.labels(reason="cancelled").inc()
                continue
            self._unwanted.add(run.run_id)
            if run.run_id not in self._ended:
                self._ended[run.run_id] = asyncio.get_running_loop().create_future()
            ends.append(self._ended[run.run_id])
            if current and self._current is not None:
                self._current[1].set()
        self._kick.set()
        for end in ends:
            await asyncio.shield(end)
        await self._log.settled()

    def leave(self, *, finish: bool) -> None:
        """Begin no run any more, and pause the one under way at its next step, unless it is to `finish`."""
        self._leaving = True
        self._pausing = not finish
        self._kick.set()

    def close(self) -> None:
        """Nobody works here any more; whoever waits for an end is told so."""
        for ended in self._ended.values():
            if not ended.done():
                ended.set_exception(Unavailable("somebody else goes on with this thread, try again"))
                ended.exception()  # nobody may be waiting for it any more

    # Work

    async def work(self) -> None:
        """Until the thread is quiet for long enough, or is to be left. Raises Lost."""
        while True:
            run_id = self.thread.next_run()
            if run_id is not None and not self._pausing:
                await self._run(run_id)
                continue
            if run_id is None:
                await self._nothing_to_do()
            if self._leaving:
                return
            try:
                async with asyncio.timeout(self._parts.config.idle):
                    await self._kick.wait()
            except TimeoutError:
                return
            self._kick.clear()

    async def _nothing_to_do(self) -> None:
        async with self._writing:
            if self._open_revision is not None and self.thread.next_run() is None:
                await ownership.insist(self._done)

    async def _done(self) -> None:
        await self._parts.records.done(self._owned.thread, self._open_revision)
        self._open_revision = None

    async def _run(self, run_id: str) -> None:
        record, cancelled = self._owned, asyncio.Event()
        if run_id in self._unwanted:
            cancelled.set()
        self._current = (run_id, cancelled)
        try:
            await self._parts.agent.received_message(
                record.user,
                self.thread,
                run_id,
                self._record,
                cancelled,
                model=record.model,
                instructions=record.instructions or self._parts.config.instructions,
            )
        except Exception as exc:
            if isinstance(exc, ExceptionGroup) and exc.subgroup(Lost):
                raise Lost from exc
            logger.exception("a run broke", thread=record.thread, run=run_id)
            await self._break_off(self.thread.runs[run_id])
        finally:
            self._current = None
        self._unwanted.discard(run_id)
        if (ended := self._ended.pop(run_id, None)) is not None and not ended.done():
            ended.set_result(None)
        run = self.thread.runs[run_id]
        RUNS.labels(reason=run.reason).inc()
        RUN_SECONDS.observe(max(now_ms() - run.started, 0) / 1000)
        TOKENS.labels(direction="in").inc(run.usage.input_tokens)
        TOKENS.labels(direction="out").inc(run.usage.output_tokens)

    async def _record(self, event: Event, *, confirm: bool) -> None:
        """What a run says. Where the thread is left, it stops before a call or the next answer begins."""
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
        if self._pausing:
            self.paused.set()
            await asyncio.Event().wait()  # until whoever leaves the thread ends this task

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
            self.thread.apply(event)
            await self._log.store(event)
