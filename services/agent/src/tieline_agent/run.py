"""Pure: one run, from a user's message to its one end, as a state machine: facts go in, effects come out.

ask the model ─→ answer without calls ───────────────→ ended (answer)
     ↑               │ with calls
     └── all ended ── calls, in parallel

Rule 1: every event is applied to the folded thread the moment it is told, so the thread a new owner folds from the log
        is the one this run decided by. `start` goes on from any prefix: finished results are used, calls that were
        begun are told to the model as interrupted and never made again, those that were not begun are made.
Rule 2: effects are performed in their order. A `Record` that something follows is confirmed before that begins.
Rule 3: whatever happens the run ends exactly once; before that, its open answer and its open calls are closed.
Rule 4: facts that come too late (a result after a cancel) change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from tieline_protocol import jsontext
from tieline_protocol.errors import Code, Refused
from tieline_protocol.naming import Pair

from tieline_agent import arguments, events, history, ids, results
from tieline_agent.assembly import Assembly, CallDelta, Finished, Joiner, ReasoningDelta, TextDelta, Usage
from tieline_agent.events import Event, Reason
from tieline_agent.facts import (
    AskModel,
    CallEnded,
    CallProgressed,
    Cancelled,
    Effect,
    End,
    Fact,
    ModelFailed,
    Record,
    StartCall,
    StopCalls,
    StopModel,
    TimeUp,
    confirmed,
)
from tieline_agent.limits import Limits
from tieline_agent.results import Outcome
from tieline_agent.thread import INTERRUPTED, Call, Step, Thread

_ID_CHARS = 40  # the shortest limit that a provider sets to the id of a call


class Phase(Enum):
    BETWEEN = "between"
    ASKING = "asking"
    CALLING = "calling"
    ENDED = "ended"


class Run:
    """The run `run_id` of a thread. `tools` says which pair a tool's name stands for."""

    def __init__(
        self, thread: Thread, run_id: str, tools: Mapping[str, Pair], limits: Limits, instructions: str = ""
    ) -> None:
        self.thread = thread
        self.state = thread.runs[run_id]
        self.phase = Phase.BETWEEN
        self.deadline = 0
        self._tools = tools
        self._limits = limits
        self._instructions = instructions
        self._assembly = Assembly()
        self._joiner = Joiner()
        self._asked_chars = 0
        self._effects: list[Effect] = []

    def start(self, now: int, notes: dict[str, Any] | None = None) -> list[Effect]:
        """Begin, or go on where the log ends. `now` is Unix milliseconds; `notes` are told when the run begins."""
        if self.state.state == "ended":
            self.phase = Phase.ENDED
            return [End()]
        if self.state.state == "queued":
            self._record(events.run_running(self.state.run_id, now, notes or {}))
        self.deadline = self.state.started + self._limits.time_ms
        self._close_answer()
        if now >= self.deadline:
            self._end("limit_time")
        else:
            self._go_on()
        return self._taken()

    def received(self, fact: Fact) -> list[Effect]:
        """What to do about a fact."""
        match fact:
            case Cancelled() if self.phase in (Phase.ASKING, Phase.CALLING):
                self._end("cancelled")
            case TimeUp() if self.phase in (Phase.ASKING, Phase.CALLING):
                self._end("limit_time")
            case TextDelta() | ReasoningDelta() | CallDelta() if self.phase is Phase.ASKING:
                self._streamed(fact)
            case Finished() if self.phase is Phase.ASKING:
                self._answered(fact)
            case ModelFailed(code, message) if self.phase is Phase.ASKING:
                self.phase = Phase.BETWEEN
                self._end("error", {"code": str(code), "message": message})
            case CallProgressed(tool_call_id, progress) if self._is_open(tool_call_id):
                self._record(events.tool_progress(self.state.run_id, tool_call_id, progress))
            case CallEnded(tool_call_id, outcome) if self._is_open(tool_call_id):
                self._record(events.tool_result(self.state.run_id, tool_call_id, outcome))
                if not self.state.steps[-1].open_calls:
                    self.phase = Phase.BETWEEN
                    self._ask()
            case _:
                pass
        return self._taken()

    def _is_open(self, tool_call_id: str) -> bool:
        if self.phase is not Phase.CALLING:
            return False
        return any(call.id == tool_call_id for call in self.state.steps[-1].open_calls)

    # --- steps

    def _go_on(self) -> None:
        step = self.state.steps[-1] if self.state.steps else None
        if step is None:
            self._ask()
        elif not step.calls:
            self._finish(step.finish)
        elif step.open_calls:
            self._call(step)
        else:
            self._ask()

    def _ask(self) -> None:
        if (reached := self._limit_reached()) is not None:
            self._end(reached)
            return
        self.phase = Phase.ASKING
        self._assembly, self._joiner = Assembly(), Joiner()
        messages = history.messages(
            self.thread,
            self.state.run_id,
            self._instructions,
            most=self._limits.history_chars,
            most_result=self._limits.result_chars,
        )
        self._asked_chars = sum(map(history.size, messages))
        self._effects.append(AskModel(messages))

    def _limit_reached(self) -> Reason | None:
        if self.state.requests >= self._limits.steps:
            return "limit_steps"
        if self.state.tool_calls > self._limits.tool_calls:
            return "limit_tool_calls"
        return "limit_tokens" if self.state.usage.total >= self._limits.tokens else None

    def _streamed(self, piece: TextDelta | ReasoningDelta | CallDelta) -> None:
        if isinstance(piece, CallDelta):
            self._assembly.add(piece)
        elif isinstance(piece, ReasoningDelta):
            self._record(events.reasoning(self.state.run_id, self._message_id, piece.text))
        else:
            self._said(self._joiner.add(piece.text))
        said = self.state.partial.size if self.state.partial else 0
        if said + self._assembly.size > self._limits.answer_chars:
            self._end("limit_tokens")

    def _said(self, text: str) -> None:
        if text:
            self._record(events.delta(self.state.run_id, self._message_id, text))

    @property
    def _message_id(self) -> str:
        return ids.answer_id(self.state.run_id, self.thread.openings, self.state.requests)

    def _answered(self, finished: Finished) -> None:
        self.phase = Phase.BETWEEN
        self._said(self._joiner.rest())
        content = "".join(self.state.partial.pieces) if self.state.partial else ""
        calls = [] if finished.reason == "content_filter" else self._tool_calls()
        usage = finished.usage or Usage(
            self._asked_chars // 4, (len(content) + self._assembly.size) // 4, estimated=True
        )
        self._record(
            events.answer(self.state.run_id, self._message_id, content, finished.reason, usage, calls)
        )
        self._go_on()

    def _tool_calls(self) -> list[dict[str, str]]:
        taken = {call.id for step in self.state.steps for call in step.calls}
        calls = []
        for position, parts in enumerate(self._assembly.calls):
            call_id = parts.id
            if not call_id.isascii() or not 0 < len(call_id) <= _ID_CHARS or call_id in taken:
                call_id = ids.call_id(self.state.run_id, self.state.requests, position)
            taken.add(call_id)
            calls.append({"id": call_id, "name": parts.name, "arguments": parts.arguments})
        return calls

    def _call(self, step: Step) -> None:
        if (reached := self._limit_reached()) is not None:
            self._end(reached)
            return
        starts = [start for call in step.open_calls if (start := self._begin(call, step)) is not None]
        if starts:
            self.phase = Phase.CALLING
            self._effects += starts
        else:
            self._ask()

    def _begin(self, call: Call, step: Step) -> StartCall | None:
        if call.started:
            self._close_call(call, INTERRUPTED)
            return None
        pair = self._tools.get(call.name)
        try:
            given = arguments.parse(call.arguments, cut=step.finish == "length" and call is step.calls[-1])
        except Refused as exc:
            self._tell(call, pair, call.arguments)
            self._close_call(call, results.failure(exc.code, exc.message))
            return None
        self._tell(call, pair, given)
        if pair is None:
            message = (
                f"unknown tool {call.name!r}: it does not exist, or its remote is not connected any more"
            )
            self._close_call(call, results.failure(Code.NOT_FOUND, message))
            return None
        return StartCall(call.id, call.name, given)

    def _tell(self, call: Call, pair: Pair | None, given: dict[str, Any] | str) -> None:
        remote, function = pair or ("", "")
        self._record(events.tool_call(self.state.run_id, call.id, call.name, remote, function, given))

    def _close_call(self, call: Call, outcome: Outcome) -> None:
        self._record(events.tool_result(self.state.run_id, call.id, outcome))

    # --- ends

    def _finish(self, finish: str) -> None:
        if finish == "length":
            self._end("limit_tokens")
        elif finish == "content_filter":
            message = "the provider's content filter ended the answer"
            self._end("error", {"code": str(Code.INTERNAL), "message": message})
        else:
            self._end("answer")

    def _end(self, reason: Reason, error: dict[str, str] | None = None) -> None:
        if self.phase is Phase.ASKING:
            self._effects.append(StopModel())
        elif self.phase is Phase.CALLING:
            self._effects.append(StopCalls())
        self.phase = Phase.ENDED
        self._close_answer()
        for call in self.state.steps[-1].open_calls if self.state.steps else ():
            self._close_call(call, _stopped(call, reason))
        self._record(events.run_ended(self.state.run_id, reason, self.state.usage, error))
        self._effects.append(End())

    def _close_answer(self) -> None:
        if (partial := self.state.partial) is not None:
            text = "".join(partial.pieces) + self._joiner.rest()
            self._record(events.interrupted(self.state.run_id, partial.message_id, text))

    def _record(self, event: Event) -> None:
        # As it will stand in the log: the model may write what JSON has no room for.
        event = jsontext.loads(jsontext.dumps(event))
        self.thread.apply(event)
        self._effects.append(Record(event))

    def _taken(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return confirmed(effects)


def _stopped(call: Call, reason: Reason) -> Outcome:
    code = Code.TIMEOUT if reason == "limit_time" else Code.CANCELLED
    message = "the run was cancelled" if reason == "cancelled" else f"the run ended ({reason})"
    return results.failure(code, f"{message} before this call {'had ended' if call.started else 'was made'}")
