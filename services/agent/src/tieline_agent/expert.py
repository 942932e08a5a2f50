"""The expert agent: carries out what run.py decides: asks the model, calls tools in parallel, records events.

One task takes the facts, in order, and performs the effects; the request to the model, each call, the clock and the
wish to cancel are tasks that put facts into one bounded queue (full: they wait, and with them the model's stream).
Whatever ends `run` from outside, the HTTP stream and the calls end with it; the next owner goes on from the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog
from tieline_protocol import naming, tracing
from tieline_protocol.errors import Code, TielineError

from tieline_agent import facts, results, telemetry
from tieline_agent.events import Event
from tieline_agent.limits import Limits
from tieline_agent.model import Model, ModelError
from tieline_agent.results import Outcome
from tieline_agent.run import Run
from tieline_agent.thread import Thread
from tieline_agent.tools import RemoteToolSpec, Tool, Toolbox, toolbox

log = structlog.get_logger()

_QUEUE = 64


class Record(Protocol):
    """Publish an event of the thread; with `confirm`, return once it and all before it are stored."""

    async def __call__(self, event: Event, *, confirm: bool) -> None: ...


class HasRemoteTools(Protocol):
    """The part of the app that knows remotes. Names of remotes that are not connected give no tools."""

    def getRemoteTools(self, user_id: str, remotes: Sequence[str]) -> Awaitable[list[RemoteToolSpec]]: ...


@dataclass(frozen=True, slots=True)
class RunInput:
    """What a run is given. It applies its own events to `thread`; others may apply new messages to it meanwhile."""

    user_id: str
    thread: Thread
    run_id: str
    remotes: Sequence[str] = ()
    input_tools: Sequence[Tool] = ()
    model: str | None = None
    instructions: str = ""


def _unix_ms() -> int:
    return time.time_ns() // 1_000_000


class ExpertAgent:
    """Runs of the expert agent; one object serves all threads."""

    def __init__(
        self,
        app: HasRemoteTools,
        model: Model,
        limits: Limits | None = None,
        *,
        now: Callable[[], int] = _unix_ms,
    ) -> None:
        self._app = app
        self._model = model
        self._limits = limits or Limits()
        self._now = now

    async def run(self, given: RunInput, record: Record, cancelled: asyncio.Event) -> None:
        """Bring a run to its end, from wherever its log stands. Setting `cancelled` ends it as cancelled.

        Raises what `record` raises, in a group: then nothing more may be told, and somebody else goes on.
        """
        with telemetry.running(given.thread, given.run_id, given.model or self._model.settings.model):
            await self._run(given, record, cancelled)

    async def _run(self, given: RunInput, record: Record, cancelled: asyncio.Event) -> None:
        remote = await self._remote_tools(given, cancelled)
        failed, remote = (remote, []) if isinstance(remote, facts.ModelFailed) else (None, remote)
        tools = toolbox(given.input_tools, remote)
        notes = _notes(given, tools, remote)
        machine = Run(given.thread, given.run_id, tools.pairs, self._limits, given.instructions)
        heard: asyncio.Queue[facts.Fact] = asyncio.Queue(_QUEUE)
        async with asyncio.TaskGroup() as group:
            work = _Work(group, heard, self._model, tools, given, self._limits)
            effects = machine.start(self._now(), notes)
            if cancelled.is_set():
                effects += machine.received(facts.Cancelled())
            work.background(_until(cancelled, heard))
            work.background(_alarm((machine.deadline - self._now()) / 1000, heard))
            told = False
            while True:
                for effect in effects:
                    if isinstance(effect, facts.Record):
                        await record(effect.event, confirm=effect.confirm)
                    elif isinstance(effect, facts.AskModel) and failed is not None:
                        await heard.put(failed)
                    elif isinstance(effect, facts.End):
                        work.stop()
                        return
                    else:
                        work.perform(effect, (machine.deadline - self._now()) / 1000)
                fact = await heard.get()
                if cancelled.is_set() and not told:
                    told, fact = True, facts.Cancelled()  # before what has piled up
                effects = machine.received(fact)

    async def _remote_tools(
        self, given: RunInput, cancelled: asyncio.Event
    ) -> list[RemoteToolSpec] | facts.ModelFailed:
        """What `getRemoteTools` gives; nothing where the run is cancelled meanwhile."""
        if not given.remotes:
            return []

        async def ask() -> list[RemoteToolSpec] | facts.ModelFailed:
            try:
                return await self._app.getRemoteTools(given.user_id, given.remotes)
            except TielineError as exc:
                # An answer without the tools that the user gave would be a wrong one.
                return facts.ModelFailed(exc.code, f"the remotes cannot be read: {exc.message}")

        async with asyncio.TaskGroup() as group:
            asking = group.create_task(ask(), name=f"remotes of run {given.run_id}")
            stop = group.create_task(cancelled.wait(), name=f"is run {given.run_id} cancelled?")
            await asyncio.wait((asking, stop), return_when=asyncio.FIRST_COMPLETED)
            asking.cancel()
            stop.cancel()
        return [] if asking.cancelled() else asking.result()


def _notes(given: RunInput, tools: Toolbox, remote: Sequence[RemoteToolSpec]) -> dict[str, Any]:
    """What the user should know about the tools of a run."""
    notes: dict[str, Any] = {}
    if dropped := naming.listed(tools.dropped):
        log.warning("more tools than the model takes", run=given.run_id, dropped=dropped)
        notes["dropped_tools"] = dropped
    if missing := sorted(set(given.remotes) - {spec.remotename for spec in remote}):
        notes["missing_remotes"] = missing
    return notes


class _Work:
    """The tasks of one run."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        heard: asyncio.Queue[facts.Fact],
        model: Model,
        tools: Toolbox,
        given: RunInput,
        limits: Limits,
    ) -> None:
        self._group = group
        self._heard = heard
        self._model = model
        self._tools = tools
        self._given = given
        self._limits = limits
        self._background: list[asyncio.Task[None]] = []
        self._asking: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        self._background.append(self._group.create_task(work, name=f"watch over run {self._given.run_id}"))

    def perform(self, effect: facts.Effect, left: float) -> None:
        """Begin or stop something; `left` is how many seconds the run has."""
        match effect:
            case facts.AskModel(messages):
                self._asking = self._group.create_task(
                    self._ask(messages, left), name=f"model of run {self._given.run_id}"
                )
            case facts.StartCall(tool_call_id, name, arguments):
                task = self._group.create_task(
                    self._call(tool_call_id, name, arguments, left), name=f"call {tool_call_id}"
                )
                self._calls.add(task)
                task.add_done_callback(self._calls.discard)
            case facts.StopModel() if self._asking is not None:
                self._asking.cancel()
            case facts.StopCalls():
                for task in self._calls:
                    task.cancel()
            case _:
                raise AssertionError(f"not an effect to perform: {effect!r}")

    def stop(self) -> None:
        for task in self._background:
            task.cancel()

    async def _ask(self, messages: list[dict[str, Any]], left: float) -> None:
        # The run's own clock ends it at `left`, as what it is; this is for a clock that does not.
        deltas = self._model.stream(
            messages, self._tools.to_openai(), model=self._given.model, total=max(left, 0) + 1
        )
        settings = self._model.settings
        try:
            with telemetry.asking(settings, self._given.model or settings.model, messages) as answer:
                async with contextlib.aclosing(deltas):
                    async for delta in deltas:
                        answer.heard(delta)
                        await self._heard.put(delta)
        except ModelError as exc:
            await self._heard.put(facts.ModelFailed(exc.code, exc.message))
        except Exception as exc:  # the run must end, and say so
            log.exception("asking the model failed", run=self._given.run_id)
            await self._heard.put(facts.ModelFailed(Code.INTERNAL, f"asking the model failed: {exc!r}"))

    async def _call(self, tool_call_id: str, name: str, arguments: dict[str, Any], left: float) -> None:
        with telemetry.calling(tool_call_id, name, self._tools.pairs.get(name), arguments) as call:
            outcome = await self._outcome(tool_call_id, name, arguments, left)
            call.ended(outcome)
        await self._heard.put(facts.CallEnded(tool_call_id, outcome))

    async def _outcome(self, tool_call_id: str, name: str, arguments: dict[str, Any], left: float) -> Outcome:
        def progressed(progress: dict[str, Any]) -> None:
            with contextlib.suppress(asyncio.QueueFull):  # the next one says more
                self._heard.put_nowait(facts.CallProgressed(tool_call_id, progress))

        tool = self._tools.tools[name]
        timeout = max(min(self._limits.tool_ms / 1000, left), 0.001)
        if isinstance(tool, RemoteToolSpec):
            tool = replace(tool, timeout=timeout, on_progress=progressed, traceparent=tracing.current())
        try:
            # Whoever makes the call keeps the time; this is for a tool that does not.
            async with asyncio.timeout(timeout + 1):
                return results.success(await tool.execute_async(**arguments))
        except TimeoutError:
            return results.failure(Code.TIMEOUT, f"no result within {timeout:g} s")
        except TielineError as exc:
            return results.failure(exc.code, exc.message)
        except Exception as exc:  # noqa: BLE001  # a tool that fails is the model's business, not the run's
            log.warning("a tool failed", tool=name, error=repr(exc))
            return results.failure(Code.INTERNAL, f"{type(exc).__name__}: {exc}")


async def _until(cancelled: asyncio.Event, heard: asyncio.Queue[facts.Fact]) -> None:
    await cancelled.wait()
    await heard.put(facts.Cancelled())


async def _alarm(seconds: float, heard: asyncio.Queue[facts.Fact]) -> None:
    await asyncio.sleep(seconds)
    await heard.put(facts.TimeUp())
