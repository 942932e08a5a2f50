"""One run: facts in, effects out; then driven as a state machine, with crashes at every prefix of its log."""

import contextlib
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tieline_agent import events, history, results
from tieline_agent.assembly import CallDelta, Finished, ReasoningDelta, TextDelta, Usage
from tieline_agent.events import Event
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
)
from tieline_agent.limits import Limits
from tieline_agent.run import Phase, Run
from tieline_agent.thread import Thread, fold
from tieline_ops.scripted_model import validation
from tieline_protocol.errors import Code
from tieline_protocol.naming import Pair

TOOLS = {"a__f": Pair("a", "f"), "a__g": Pair("a", "g")}
SAID = events.user_message("m", "r", "hi")
STOP = Finished("stop", Usage(10, 2))
ASKS = Finished("tool_calls", Usage(10, 2))


class Driven:
    """A run with its log, as the shell would keep it."""

    def __init__(self, log: list[Event] | None = None, limits: Limits | None = None, **start: Any) -> None:
        self.log = [SAID] if log is None else log
        self.run = Run(fold("t", self.log), "r", TOOLS, limits or Limits(), "Be brief.")
        self.effects = self._took(self.run.start(start.get("now", 1_000), start.get("notes")))

    def hears(self, *facts: Fact) -> list[Effect]:
        self.effects = [effect for fact in facts for effect in self._took(self.run.received(fact))]
        return self.effects

    def _took(self, effects: list[Effect]) -> list[Effect]:
        self.log += [effect.event for effect in effects if isinstance(effect, Record)]
        return effects

    @property
    def does(self) -> list[Effect]:
        """What is to be done beside telling."""
        return [effect for effect in self.effects if not isinstance(effect, Record)]

    @property
    def told(self) -> list[tuple[Any, ...]]:
        """What was told in the end, in short."""
        keys = ("type", "content", "text", "state", "reason", "result", "error", "code", "interrupted")
        return [
            tuple(effect.event[key] for key in keys if key in effect.event and effect.event[key] is not None)
            for effect in self.effects
            if isinstance(effect, Record)
        ]

    def asked_for(self, *calls: tuple[str, str, str]) -> list[Effect]:
        """The model answers with calls (id, name, arguments)."""
        pieces = [CallDelta(index, *call) for index, call in enumerate(calls)]
        return self.hears(*pieces, ASKS)

    @property
    def results(self) -> dict[str, str]:
        step = self.run.state.steps[-1]
        return {call.id: call.told().text(1_000) for call in step.calls}

    @property
    def ended(self) -> str | None:
        return self.run.state.reason


def test_an_answer_without_calls_ends_the_run():
    run = Driven(notes={"missing_remotes": ["x"]})

    assert run.does == [
        AskModel([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}])
    ]
    assert run.log[1] == {
        "type": "run",
        "run_id": "r",
        "state": "running",
        "started": 1_000,
        "missing_remotes": ["x"],
    }
    run.hears(ReasoningDelta("hm"), TextDelta("Hel"), TextDelta("lo"), STOP)
    assert run.log[2]["type"] == "reasoning"
    assert run.log[5]["content"] == "Hello"
    assert run.log[6]["usage"] == {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    assert (run.does, run.ended) == ([End()], "answer")


def test_nothing_begins_before_what_leads_to_it_is_stored():
    run = Driven()
    confirmed = [[effect.confirm for effect in run.effects if isinstance(effect, Record)]]
    run.asked_for(("1", "a__f", "{}"), ("2", "a__g", "{}"))
    confirmed.append([effect.confirm for effect in run.effects if isinstance(effect, Record)])

    assert confirmed == [[True], [False, False, True]]


def test_calls_run_in_parallel_and_their_results_are_read_in_call_order():
    """B56: f takes longer than g; the history has f first."""
    run = Driven()
    run.asked_for(("1", "a__f", '{"x":1}'), ("2", "a__g", '{"y":2}'))
    assert run.does == [StartCall("1", "a__f", {"x": 1}), StartCall("2", "a__g", {"y": 2})]

    run.hears(CallEnded("2", results.success("g!")))
    assert run.does == []
    run.hears(CallProgressed("1", {"progress": 0.5}), CallEnded("1", results.success(0)))
    (asks,) = run.does
    assert isinstance(asks, AskModel)
    assert [message["content"] for message in asks.messages if message["role"] == "tool"] == ["0", "g!"]
    run.hears(TextDelta("Done."), STOP)
    assert run.ended == "answer"
    assert [event["type"] for event in run.log].count("tool_progress") == 1


def test_broken_arguments_and_unknown_tools_are_told_to_the_model_and_the_run_goes_on():
    """B54: (c) to (f) do not run. B58: a made-up name, an empty name."""
    run = Driven()
    run.asked_for(("1", "a__f", '{"city":'), ("2", "browser__opne_tab", "{}"), ("3", "", "[1]"))

    assert isinstance(run.does[0], AskModel)
    assert run.results["1"].startswith("error: invalid_arguments: ")
    assert run.results["2"].startswith("error: not_found: unknown tool 'browser__opne_tab'")
    assert run.results["3"].startswith("error: invalid_arguments: ")
    tool_calls = [event for event in run.log if event["type"] == "tool_call"]
    assert [event["arguments"] for event in tool_calls] == ['{"city":', {}, "[1]"]


def test_a_call_that_is_good_runs_beside_one_that_is_not():
    run = Driven()
    run.asked_for(("1", "nobody", "{}"), ("2", "a__f", ""))

    assert run.does == [StartCall("2", "a__f", {})]


def test_what_the_limit_of_tokens_cut_off_does_not_run():
    """B54: (c) finish_reason length in the arguments of a call; an empty text then is not "none"."""
    run = Driven()
    run.hears(CallDelta(0, "1", "a__f", "{}"), CallDelta(1, "2", "a__g", ""), Finished("length"))

    assert run.does == [StartCall("1", "a__f", {})]
    assert "cut off" in run.results["2"]


@pytest.mark.parametrize("ids", [(None, None), ("", "x" * 41), ("ü", ""), ("same", "same")])
def test_calls_without_usable_ids_get_some_of_their_own(ids: tuple[str | None, str | None]):
    run = Driven()
    run.hears(CallDelta(0, ids[0], "a__f", "{}"), CallDelta(1, ids[1], "a__g", "{}"), ASKS)
    starts = [effect.tool_call_id for effect in run.does if isinstance(effect, StartCall)]

    assert len(set(starts)) == 2
    assert all(0 < len(each) <= 40 for each in starts)


def test_an_id_that_came_in_an_earlier_answer_is_not_used_again():
    run = Driven()
    run.asked_for(("call_0", "a__f", "{}"))
    run.hears(CallEnded("call_0", results.success(1)))
    run.asked_for(("call_0", "a__f", "{}"))

    assert isinstance(run.does[0], StartCall)
    assert run.does[0].tool_call_id != "call_0"


def test_a_model_that_fails_under_way_ends_the_run_and_its_text_stays_as_interrupted():
    """B63: an error for the user; what was said stays, and is no part of the next request."""
    run = Driven()
    run.hears(TextDelta("Hel"), ModelFailed(Code.TIMEOUT, "the model was silent for 9 s"))

    assert run.told[1] == ("message", "Hel", True)
    assert run.log[-1]["error"] == {"code": "timeout", "message": "the model was silent for 9 s"}
    assert (run.does, run.ended) == ([End()], "error")
    assert history.messages(run.run.thread, "r") == [{"role": "user", "content": "hi"}]


def test_cancelling_an_answer_closes_it():
    """B59: mid-stream, with half a tool call received: the partial answer is gone from the history."""
    run = Driven()
    run.hears(TextDelta("Hel"), CallDelta(0, "1", "a__f", '{"x'), Cancelled())

    assert run.effects[-4:][0] == StopModel()
    assert run.told == [("delta", "Hel"), ("message", "Hel", True), ("run", "ended", "cancelled")]
    assert run.hears(TextDelta("lo"), STOP, Cancelled(), TimeUp()) == []


def test_cancelling_calls_leaves_each_with_an_answer():
    """B59: two calls pending; the cancelled ids have a tool message, a late result changes nothing."""
    run = Driven()
    run.asked_for(("1", "a__f", "{}"), ("2", "a__g", "{}"))
    run.hears(CallEnded("1", results.success("ok")), Cancelled())

    assert run.does == [StopCalls(), End()]
    assert run.results == {
        "1": "ok",
        "2": "error: cancelled: the run was cancelled before this call had ended",
    }
    assert run.hears(CallEnded("2", results.success("late")), CallProgressed("2", {})) == []
    validation.check({"model": "m", "messages": history.messages(run.run.thread, "r")})


def test_an_endless_loop_of_tools_stops_at_the_limit_of_steps():
    """B64: the model asks for the same tool every round; the last round's call is not made."""
    run = Driven(limits=Limits(steps=3))
    for number in range(3):
        assert run.ended is None
        run.asked_for((f"c{number}", "a__f", "{}"))
        run.hears(CallEnded(f"c{number}", results.success(1)))

    assert run.ended == "limit_steps"
    assert [event["type"] for event in run.log].count("tool_call") == 2
    assert run.results == {"c2": "error: cancelled: the run ended (limit_steps) before this call was made"}


def test_an_answer_that_asks_for_too_many_calls_has_none_of_them_made():
    run = Driven(limits=Limits(tool_calls=1))
    run.asked_for(("1", "a__f", "{}"), ("2", "a__g", "{}"))

    assert (run.does, run.ended) == ([End()], "limit_tool_calls")


def test_the_limit_of_tokens_lets_an_answer_through_but_no_further_round():
    limits = Limits(tokens=12)
    run, other = Driven(limits=limits), Driven(limits=limits)
    run.hears(TextDelta("42"), STOP)
    other.asked_for(("1", "a__f", "{}"))

    assert (run.ended, other.ended) == ("answer", "limit_tokens")


def test_tokens_that_nobody_counted_are_estimated():
    run = Driven(limits=Limits(tokens=100))
    run.hears(TextDelta("x" * 400), CallDelta(0, "1", "a__f", "{}"), Finished("tool_calls"))

    assert run.ended == "limit_tokens"
    assert run.log[-1]["usage"]["estimated"] is True


def test_an_answer_without_end_is_ended():
    run = Driven(limits=Limits(answer_chars=100))
    run.hears(*[TextDelta("x" * 30)] * 4)
    calls = Driven(limits=Limits(answer_chars=100))
    calls.hears(*[CallDelta(0, None, None, "")] * 7)

    assert (run.ended, run.does) == ("limit_tokens", [StopModel(), End()])
    assert calls.ended == "limit_tokens"


def test_the_wall_clock_ends_a_run_and_its_calls():
    run = Driven(limits=Limits(time_ms=500))
    run.asked_for(("1", "a__f", "{}"))
    run.hears(TimeUp())

    assert run.run.deadline == 1_500
    assert (run.does, run.ended) == ([StopCalls(), End()], "limit_time")
    assert run.results["1"].startswith("error: timeout: ")


@pytest.mark.parametrize(("finish", "reason"), [("length", "limit_tokens"), ("content_filter", "error")])
def test_an_answer_that_the_provider_cut_is_kept_and_says_so(finish: str, reason: str):
    run = Driven()
    run.hears(TextDelta("Hel"), CallDelta(0, "1", "a__f", "{}") if finish != "length" else TextDelta("l"))
    run.hears(Finished(finish))

    assert (run.ended, run.does) == (reason, [End()])
    assert run.run.state.steps[-1].calls == []
    assert run.run.state.steps[-1].content.startswith("Hel")


def test_half_an_emoji_at_the_end_is_told_as_the_log_can_keep_it():
    """B20: the other parts: what the model says, and what it names its calls."""
    run = Driven()
    run.hears(TextDelta("a\ud83d"), CallDelta(0, "1", "\udc97", "{}"), ASKS)

    assert run.run.state.steps[0].content == "a\ufffd"
    assert run.run.state.steps[0].calls[0].name == "\ufffd"
    assert run.run.thread == fold("t", run.log)


def test_half_an_emoji_before_a_cancel_is_closed_too():
    run = Driven()
    run.hears(TextDelta("a\ud83d"), Cancelled())

    assert ("message", "a\ufffd", True) in run.told


# --- going on after a crash: from any prefix of the log


def test_a_run_that_had_ended_has_nothing_left_to_do():
    assert Driven([SAID, events.run_ended("r", "answer", Usage())]).effects == [End()]


def test_an_answer_that_was_cut_by_a_crash_is_closed_and_asked_for_anew_under_another_id():
    first = Driven()
    first.hears(TextDelta("Hel"))
    second = Driven(first.log)
    second.hears(TextDelta("Hello"))

    assert second.told == [("delta", "Hello")]
    assert second.log[3]["interrupted"] is True
    assert second.log[-1]["message_id"] != second.log[2]["message_id"]


def test_finished_results_are_used_begun_calls_are_interrupted_and_the_rest_is_made():
    first = Driven()
    first.asked_for(("1", "a__f", "{}"), ("2", "a__g", "{}"))
    first.hears(CallEnded("1", results.success("kept")))
    second = Driven(first.log)

    assert second.results == {
        "1": "kept",
        "2": "error: unavailable: interrupted: nobody waited for this call to its end; it may or may not have run",
    }
    assert isinstance(second.does[0], AskModel)


def test_calls_that_were_not_begun_before_the_crash_are_made_after_it():
    first = Driven()
    first.asked_for(("1", "a__f", "{}"), ("2", "a__g", "{}"))
    second = Driven(first.log[: 1 + [event["type"] for event in first.log].index("tool_call")])

    assert second.does == [StartCall("2", "a__g", {})]


def test_all_calls_done_before_the_crash_leads_to_the_next_question():
    first = Driven()
    first.asked_for(("1", "a__f", "{}"))
    first.hears(CallEnded("1", results.success("kept")))

    assert [type(effect) for effect in Driven(first.log).does] == [AskModel]


def test_a_final_answer_before_the_crash_only_needs_its_end():
    first = Driven()
    first.hears(TextDelta("Hi."), STOP)

    assert Driven(first.log[:-1]).told == [("run", "ended", "answer")]


def test_attempts_that_crash_count_as_steps():
    log = Driven().log
    for _ in range(3):
        run = Driven(log, Limits(steps=2))
        run.hears(TextDelta("x"))

    assert run.ended == "limit_steps"


def test_a_run_that_nobody_worked_on_past_its_time_ends():
    run = Driven(Driven().log, now=10_000_000)

    assert (run.does, run.ended) == ([End()], "limit_time")


# --- as a state machine

calls = st.lists(
    st.tuples(
        st.sampled_from([None, "", "a", "b", "c"]),
        st.sampled_from(["a__f", "a__g", "gone", "", "x y"]),
        st.sampled_from(["", "{}", '{"x":1}', '{"x":', "[]", '"{}"']),
    ),
    min_size=1,
    max_size=4,
)
outcomes = st.sampled_from(
    [results.success(None), results.success(""), results.success([1]), results.failure(Code.BUSY, "later")]
)


class Runs(RuleBasedStateMachine):
    """A thread of several messages, worked on by owners that crash between any two events."""

    @initialize(steps=st.integers(1, 8), tokens=st.integers(1, 200))
    def begin(self, steps: int, tokens: int) -> None:
        self.limits = Limits(steps=steps, tokens=tokens, tool_calls=6, answer_chars=200, time_ms=1_000)
        self.now = 0
        self.log: list[Event] = []
        self.thread = Thread("t")
        self.run: Run | None = None
        self.asking = False
        self.under_way: set[str] = set()
        self.executed: list[str] = []
        self.messages = 0
        self.known = Thread("t")  # what somebody who reads the log knows
        self.confirmed = 0

    # What people do.

    @precondition(lambda self: self.messages < 3)
    @rule(repeated=st.booleans())
    def somebody_writes(self, repeated: bool) -> None:
        number = max(self.messages - 1, 0) if repeated else self.messages
        answer, said = self.thread.received(f"c{number}", f"text {number}", [])
        for event in said:
            self.thread.apply(event)
            self.store(event)
        assert answer["run_id"] in self.thread.runs
        self.messages = max(self.messages, number + 1)

    @precondition(lambda self: self.run is not None)
    @rule()
    def somebody_cancels(self) -> None:
        self.hear(Cancelled())

    # What the owner does.

    @precondition(lambda self: self.run is None and self.thread.next_run() is not None)
    @rule()
    def the_owner_works(self) -> None:
        run_id = self.thread.next_run()
        assert run_id is not None
        self.run = Run(self.thread, run_id, TOOLS, self.limits)
        self.perform(self.run.start(self.now))

    @rule(lost=st.integers(0, 6))
    def the_owner_crashes(self, lost: int) -> None:
        """What was not confirmed may be lost."""
        del self.log[max(len(self.log) - lost, self.confirmed) :]
        self.thread, self.known = fold("t", self.log), fold("t", self.log)
        self.messages = len(self.thread.runs)
        self.run, self.asking = None, False
        self.under_way.clear()

    # What happens.

    @precondition(lambda self: self.asking)
    @rule(text=st.sampled_from(["a", "b\n", "\ud83d", "\ude00", "x" * 60]), thought=st.booleans())
    def the_model_says(self, text: str, thought: bool) -> None:
        self.hear(ReasoningDelta("hm") if thought else TextDelta(text))

    @precondition(lambda self: self.asking)
    @rule(given=calls, finish=st.sampled_from(["tool_calls", "tool_calls", "stop", "length"]))
    def the_model_calls(self, given: list[tuple[str | None, str, str]], finish: str) -> None:
        for index, call in enumerate(given):
            self.hear(CallDelta(index, *call))
        if self.asking:
            self.hear(Finished(finish, Usage(5, 5)))

    @precondition(lambda self: self.asking)
    @rule(finish=st.sampled_from(["stop", "length", "content_filter"]), counted=st.booleans())
    def the_model_ends(self, finish: str, counted: bool) -> None:
        self.hear(Finished(finish, Usage(5, 5) if counted else None))

    @precondition(lambda self: self.asking)
    @rule()
    def the_model_fails(self) -> None:
        self.hear(ModelFailed(Code.UNAVAILABLE, "cut"))

    @precondition(lambda self: self.under_way)
    @rule(outcome=outcomes, data=st.data())
    def a_call_ends(self, outcome: results.Outcome, data: st.DataObject) -> None:
        ended = data.draw(st.sampled_from(sorted(self.under_way)))
        self.hear(CallProgressed(ended, {"progress": 1}))
        self.under_way.discard(ended)
        self.hear(CallEnded(ended, outcome))

    @precondition(lambda self: self.run is not None)
    @rule(fact=st.sampled_from([CallEnded("nobody", results.success(1)), CallProgressed("a", {}), STOP]))
    def something_comes_too_late(self, fact: Fact) -> None:
        if not self.asking:
            self.hear(fact)

    @rule(passed=st.integers(1, 400))
    def time_passes(self, passed: int) -> None:
        self.now += passed
        if self.run is not None and self.now >= self.run.deadline:
            self.hear(TimeUp())

    def hear(self, fact: Fact) -> None:
        assert self.run is not None
        if isinstance(fact, Finished | ModelFailed):
            self.asking = False
        self.perform(self.run.received(fact))

    def store(self, event: Event) -> None:
        """An event comes to the log; what must hold at every prefix is looked at."""
        before = self.known.runs.get(event["run_id"])
        assert before is None or before.state != "ended", "nothing of a run follows its end"
        self.log.append(event)
        self.known.apply(event)
        for run_id in self.known.runs:
            validation.check({"model": "m", "messages": history.messages(self.known, run_id)})

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Record(event, confirm):
                    self.store(event)
                    if confirm:
                        self.confirmed = len(self.log)
                case AskModel(messages):
                    assert not self.asking
                    assert not self.under_way
                    validation.check({"model": "m", "messages": messages})
                    self.asking = True
                case StartCall(tool_call_id):
                    assert self.run is not None
                    self.under_way.add(tool_call_id)
                    self.executed.append(f"{self.run.state.run_id} {tool_call_id}")
                case StopModel():
                    assert self.asking
                case StopCalls():
                    self.under_way.clear()
                case End():
                    assert not self.under_way
                    self.run = None
        if self.run is None or self.run.phase is not Phase.ASKING:
            self.asking = False

    # What holds.

    @invariant()
    def a_new_owner_would_know_the_same(self) -> None:
        assert self.known == self.thread

    @invariant()
    def an_end_closes_all(self) -> None:
        for run in self.thread.runs.values():
            if run.state == "ended":
                assert run.partial is None
                assert not any(step.open_calls for step in run.steps)

    @invariant()
    def no_call_is_made_twice(self) -> None:
        assert len(set(self.executed)) == len(self.executed)

    @invariant()
    def an_owner_at_work_waits_for_something(self) -> None:
        assert self.run is None or self.asking or self.under_way

    def teardown(self) -> None:
        """Left alone, every run comes to an end."""
        with contextlib.suppress(AttributeError):
            for _ in range(100):
                if self.run is None and self.thread.next_run() is None:
                    return
                if self.run is None:
                    self.the_owner_works()
                elif self.asking:
                    self.hear(STOP)
                else:
                    ended = sorted(self.under_way)[0]
                    self.under_way.discard(ended)
                    self.hear(CallEnded(ended, results.success(1)))
            raise AssertionError("the thread does not come to rest")


TestRuns = pytest.mark.timeout(60)(Runs.TestCase)
TestRuns.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_many_more_schedules():
    run_state_machine_as_test(
        Runs, settings=settings(max_examples=2_000, stateful_step_count=50, deadline=None)
    )
