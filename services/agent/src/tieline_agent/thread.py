"""Pure: a thread, folded from its log.

The fold never fails: what it does not know, or has seen, or cannot be, changes nothing. Runs stand in the order in
which people asked; what somebody says while a run is going on is a run of its own, after that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from tieline_protocol.errors import Code

from tieline_agent import events, ids, results
from tieline_agent.assembly import Usage
from tieline_agent.events import Event
from tieline_agent.results import Outcome

RunStateName = Literal["queued", "running", "ended"]

INTERRUPTED = results.failure(
    Code.UNAVAILABLE, "interrupted: nobody waited for this call to its end; it may or may not have run"
)
NOT_STARTED = results.failure(Code.CANCELLED, "this call was not made")


@dataclass(slots=True)
class Call:
    """One tool call of an answer, and how it ended."""

    id: str
    name: str
    arguments: str
    started: bool = False
    outcome: Outcome | None = None

    def told(self) -> Outcome:
        """What the model is told if it is asked now."""
        return self.outcome or (INTERRUPTED if self.started else NOT_STARTED)


@dataclass(slots=True)
class Step:
    """One whole answer of the model."""

    message_id: str
    content: str
    finish: str
    calls: list[Call] = field(default_factory=list)

    @property
    def open_calls(self) -> list[Call]:
        return [call for call in self.calls if call.outcome is None]


@dataclass(slots=True)
class Partial:
    """An answer of which pieces stand in the log, but no end."""

    message_id: str
    pieces: list[str] = field(default_factory=list)
    size: int = 0


@dataclass(slots=True)
class RunState:
    """A user's message and what came of it."""

    run_id: str
    message_id: str | None = None
    content: str = ""
    resources: list[dict[str, Any]] = field(default_factory=list)
    state: RunStateName = "queued"
    reason: str | None = None
    started: int = 0
    steps: list[Step] = field(default_factory=list)
    interrupted: int = 0
    partial: Partial | None = None
    traceparent: str | None = None
    usage: Usage = field(default_factory=Usage)

    @property
    def requests(self) -> int:
        """How many answers the model has begun; the next one's number."""
        return len(self.steps) + self.interrupted

    @property
    def tool_calls(self) -> int:
        return sum(len(step.calls) for step in self.steps)

    def call(self, tool_call_id: str) -> Call | None:
        return next(
            (call for step in reversed(self.steps) for call in step.calls if call.id == tool_call_id), None
        )


@dataclass(slots=True)
class Thread:
    """All that a thread's log says."""

    thread_id: str
    runs: dict[str, RunState] = field(default_factory=dict)
    openings: int = 0
    _messages: set[str] = field(default_factory=set)

    def apply(self, event: Event) -> None:
        """The next event of the log."""
        run_id = event.get("run_id")
        kind = event.get("type")
        if kind == "epoch":
            self.openings += 1
        if not isinstance(run_id, str):
            return
        if kind == "message" and event.get("role") == "user":
            self._said(run_id, event)
            return
        run = self.runs.setdefault(run_id, RunState(run_id))
        if run.state != "ended":  # of two ends the first counts, and nothing comes after it
            _apply(run, event, self._messages)

    def _said(self, run_id: str, event: Event) -> None:
        run = self.runs.setdefault(run_id, RunState(run_id))
        if run.message_id is None:
            run.message_id = _text(event, "message_id")
            run.content = _text(event, "content")
            resources = event.get("resources")
            run.resources = (
                [item for item in resources if isinstance(item, dict)] if isinstance(resources, list) else []
            )

    def next_run(self) -> str | None:
        """The run to work on: the first that somebody asked for and that has not ended."""
        open_runs = (run for run in self.runs.values() if run.state != "ended" and run.message_id is not None)
        return next((run.run_id for run in open_runs), None)

    def received(
        self,
        client_message_id: str,
        content: str,
        resources: list[dict[str, Any]],
        traceparent: str | None = None,
    ) -> tuple[dict[str, str], list[Event]]:
        """The answer to `thread.message`, and the events to record; none when this was heard before."""
        message_id = ids.message_id(self.thread_id, client_message_id)
        run_id = ids.run_id(self.thread_id, client_message_id)
        answer = {"message_id": message_id, "run_id": run_id}
        if run_id in self.runs:
            return answer, []
        return answer, [
            events.user_message(message_id, run_id, content, resources),
            events.run_queued(run_id, traceparent),
        ]

    def resources(self, run_id: str) -> list[dict[str, Any]]:
        """What the thread has been given up to and with this run's message."""
        return [item for run in self.until(run_id) for item in run.resources]

    def until(self, run_id: str) -> Iterator[RunState]:
        """The runs up to and with this one."""
        for run in self.runs.values():
            yield run
            if run.run_id == run_id:
                return


def fold(thread_id: str, log: Iterable[Event]) -> Thread:
    """The thread that a log tells of."""
    thread = Thread(thread_id)
    for event in log:
        thread.apply(event)
    return thread


def _apply(run: RunState, event: Event, messages: set[str]) -> None:
    kind = event.get("type")
    if kind == "run":
        _run_changed(run, event)
    elif kind == "message":
        _answered(run, event, messages)
    elif kind in ("delta", "reasoning"):
        _streamed(run, event, kind, messages)
    elif kind in ("tool_call", "tool_result") and (call := run.call(_text(event, "tool_call_id"))):
        call.started = True
        if kind == "tool_result" and call.outcome is None:
            call.outcome = results.of(event)


def _run_changed(run: RunState, event: Event) -> None:
    state = event.get("state")
    if state == "queued":
        run.traceparent = _text(event, "traceparent") or None
    elif state == "running" and run.state == "queued":
        started = event.get("started")
        run.state, run.started = "running", started if isinstance(started, int) else 0
    elif state == "ended":
        run.state, run.reason = "ended", _text(event, "reason")


def _answered(run: RunState, event: Event, messages: set[str]) -> None:
    message_id = _text(event, "message_id")
    if message_id in messages:
        return
    messages.add(message_id)
    run.partial = None
    if event.get("interrupted"):
        run.interrupted += 1
        return
    step = Step(message_id, _text(event, "content"), _text(event, "finish"))
    tool_calls = event.get("tool_calls")
    for call in tool_calls if isinstance(tool_calls, list) else ():
        if isinstance(call, dict):
            step.calls.append(Call(_text(call, "id"), _text(call, "name"), _text(call, "arguments")))
    run.steps.append(step)
    usage = event.get("usage")
    if isinstance(usage, dict):
        run.usage = run.usage.plus(
            Usage(
                _number(usage, "input_tokens"),
                _number(usage, "output_tokens"),
                usage.get("estimated") is True,
            )
        )


def _streamed(run: RunState, event: Event, kind: str, messages: set[str]) -> None:
    message_id, text = _text(event, "message_id"), _text(event, "text")
    if message_id in messages:
        return
    if run.partial is None or run.partial.message_id != message_id:
        run.partial = Partial(message_id)
    run.partial.size += len(text)
    if kind == "delta":
        run.partial.pieces.append(text)


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _number(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) else 0
