"""Whole runs of the expert agent, with a model over real HTTP and tools in this process."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from tieline_agent import tools
from tieline_agent.agent import Agent, remotes_of
from tieline_agent.events import Event
from tieline_agent.expert import ExpertAgent
from tieline_agent.limits import Limits
from tieline_agent.model import Model, ModelSettings
from tieline_agent.thread import Thread, fold
from tieline_agent.tools import OnProgress, RemoteToolSpec
from tieline_protocol.errors import Code, Refused, Unavailable
from tieline_protocol.remotes import RemoteFunction

from tests.support.eventually import eventually
from tests.support.model import ModelServer, calling, dripping, model_server, saying, steps

REMOTE = {"kind": "system", "subkind": "remote", "content": "calc"}


class Remotes:
    """The remotes of everybody, and what was called."""

    def __init__(self) -> None:
        self.remotes: dict[str, list[str]] = {"calc": ["f", "g", "fail", "stuck", "nan"]}
        self.called: list[tuple[str, str, dict[str, Any]]] = []
        self.cancelled: list[str] = []
        self.away = False
        self.slow = 0.0
        self.asked = 0
        self.together = asyncio.Barrier(1)  # calls end once so many are under way
        self.answers: dict[str, Any] = {"f": "sunny", "g": 0, "nan": [float("nan")]}

    async def getRemoteTools(self, user_id: str, remotes: Sequence[str]) -> list[RemoteToolSpec]:
        self.asked += 1
        await asyncio.sleep(self.slow)
        if self.away:
            raise Unavailable("nobody answers")
        return tools.specs(
            (
                (
                    name,
                    [RemoteFunction(name=each, parameters={"type": "object"}) for each in self.remotes[name]],
                )
                for name in remotes
                if name in self.remotes
            ),
            self.call,
        )

    async def call(
        self,
        remotename: str,
        function: str,
        args: dict[str, Any],
        timeout: float,
        on_progress: OnProgress | None = None,
        traceparent: str | None = None,
    ) -> Any:
        self.called.append((remotename, function, args))
        if function == "fail":
            raise Refused(Code.DISCONNECTED, "the remote disconnected")
        try:
            if on_progress is not None:
                on_progress({"message": "working"})
            if function == "stuck":
                await asyncio.sleep(60)
            await self.together.wait()
        except asyncio.CancelledError:
            self.cancelled.append(function)
            raise
        if isinstance(answer := self.answers[function], Exception):
            raise answer
        return answer


@dataclass
class Rig:
    """A thread of one user, and an agent that works on it."""

    server: ModelServer
    model: Model
    remotes: Remotes
    limits: Limits = field(default_factory=lambda: Limits(tool_ms=5_000))
    log: list[Event] = field(default_factory=list)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    number: int = 0

    def write(self, content: str, *resources: dict[str, Any]) -> str:
        """A user's message; returns the id of its run."""
        self.number += 1
        answer, said = fold("t", self.log).received(f"c{self.number}", content, list(resources))
        self.log += said
        return answer["run_id"]

    async def record(self, event: Event, *, confirm: bool) -> None:
        self.log.append(event)

    async def work(self, run_id: str, thread: Thread | None = None) -> Event:
        """Bring a run to its end; returns its last event."""
        agent = Agent(ExpertAgent(self.remotes, self.model, self.limits))
        await agent.received_message(
            "ada",
            thread or fold("t", self.log),
            run_id,
            self.record,
            self.cancelled,
            instructions="Be brief.",
        )
        return self.log[-1]

    async def ask(self, content: str, *resources: dict[str, Any]) -> Event:
        return await self.work(self.write(content, *resources))

    def texts(self) -> list[str]:
        """What the assistant said, whole messages only."""
        return [
            event["content"]
            for event in self.log
            if event["type"] == "message" and event["role"] == "assistant" and "interrupted" not in event
        ]

    def results(self) -> list[str]:
        """What the model read of its calls in the newest request."""
        return [
            message["content"]
            for message in self.server.requests[-1]["messages"]
            if message["role"] == "tool"
        ]


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with model_server() as server:
        settings = ModelSettings(server.url, "no key", "m", idle=0.4, total=5.0, after_finish=0.3)
        async with Model(settings) as model:
            yield Rig(server, model, Remotes())


async def test_a_question_is_answered(rig: Rig):
    rig.server.says(saying("Hello there"))
    ended = await rig.ask("hi")

    assert (ended["state"], ended["reason"]) == ("ended", "answer")
    assert rig.texts() == ["Hellothere"]
    assert [event["text"] for event in rig.log if event["type"] == "delta"] == ["Hello", "there"]
    assert rig.server.requests[0]["messages"][0] == {"role": "system", "content": "Be brief."}


async def test_a_remote_in_the_messages_resources_is_a_tool_from_then_on(rig: Rig):
    rig.server.says(calling(("calc__f", {"city": "Paris"})), saying("Sunny."), saying("Bye."))
    await rig.ask("weather?", {"kind": "system", "subkind": "other", "content": "x"}, REMOTE)
    await rig.ask("thanks")

    assert rig.remotes.called == [("calc", "f", {"city": "Paris"})]
    assert [tool["function"]["name"] for tool in rig.server.requests[2]["tools"]][:2] == [
        "calc__f",
        "calc__g",
    ]
    call = next(event for event in rig.log if event["type"] == "tool_call")
    assert (call["remote"], call["function"], call["arguments"]) == ("calc", "f", {"city": "Paris"})
    assert any(event["type"] == "tool_progress" and event["message"] == "working" for event in rig.log)


def test_the_remotes_of_a_thread_are_named_once_in_their_order():
    other = {"kind": "system", "subkind": "remote", "content": "browser"}
    odd = {"subkind": "remote", "content": {"name": "x"}}

    assert remotes_of([REMOTE, {"content": "x"}, odd, other, REMOTE]) == ["calc", "browser"]


async def test_parallel_calls_take_the_time_of_the_longest_and_answer_in_call_order(rig: Rig):
    """B56: interleaved deltas; both run at the same time; both tool messages, in call order, ids a and b."""
    pieces: list[tuple[int, dict[str, Any]]] = [
        (0, {"id": "a", "function": {"name": "calc__f", "arguments": ""}}),
        (1, {"id": "b", "function": {"name": "calc__g", "arguments": ""}}),
        (0, {"function": {"arguments": '{"x":'}}),
        (1, {"function": {"arguments": '{"y":'}}),
        (0, {"function": {"arguments": "1}"}}),
        (1, {"function": {"arguments": "2}"}}),
    ]
    deltas = [{"delta": {"tool_calls": [{"index": index, **piece}]}} for index, piece in pieces]
    rig.server.says(steps(*deltas, {"finish": "tool_calls"}), saying("Done."))
    rig.remotes.together = asyncio.Barrier(2)
    await rig.ask("both", REMOTE)

    assert rig.remotes.called == [("calc", "f", {"x": 1}), ("calc", "g", {"y": 2})]
    answers = [message for message in rig.server.requests[1]["messages"] if message["role"] == "tool"]
    assert [(each["tool_call_id"], each["content"]) for each in answers] == [("a", "sunny"), ("b", "0")]


async def test_failing_unknown_and_broken_calls_are_read_by_the_model_and_the_run_goes_on(rig: Rig):
    """B54: broken arguments. B58: a tool that does not exist, one whose remote disconnected, an empty name."""
    rig.server.says(
        calling(
            ("calc__fail", {}),
            ("browser__opne_tab", {}),
            ("", {}),
            ("calc__f", '{"city":'),
            ("calc__f", "[1]"),
            ("calc__g", ""),
        ),
        saying("All right."),
    )
    ended = await rig.ask("try", REMOTE)

    assert ended["reason"] == "answer"
    assert rig.texts()[-1] == "Allright."
    assert [text.split(": ")[:2] for text in rig.results()[:5]] == [
        ["error", "disconnected"],
        ["error", "not_found"],
        ["error", "not_found"],
        ["error", "invalid_arguments"],
        ["error", "invalid_arguments"],
    ]
    assert rig.results()[5] == "0"
    assert [each[1] for each in rig.remotes.called] == ["fail", "g"]


async def test_arguments_encoded_twice_reach_the_remote_as_an_object(rig: Rig):
    """B55: a JSON string of a JSON string."""
    rig.server.says(calling(("calc__f", '"{\\"city\\": \\"Paris\\"}"')), saying("Done."))
    await rig.ask("weather?", REMOTE)

    assert rig.remotes.called == [("calc", "f", {"city": "Paris"})]


@pytest.mark.parametrize(
    ("value", "read"),
    [(None, "null"), ("", '""'), ([], "[]"), ({}, "{}"), (0, "0"), (False, "false"), (float("nan"), "null")],
)
async def test_an_empty_result_is_told_as_what_it_is(rig: Rig, value: Any, read: str):
    """B62: falsy results. B21: NaN from a tool becomes null, one documented rule."""
    rig.remotes.answers["f"] = value
    rig.server.says(calling(("calc__f", {})), saying("Done."))
    await rig.ask("?", REMOTE)
    told = next(event for event in rig.log if event["type"] == "tool_result")

    assert rig.results() == [read]
    assert "error" not in told
    assert told["result"] == (None if value != value else value)


@pytest.mark.parametrize(
    ("broken", "read"),
    [
        (ValueError("division by zero"), "error: internal: ValueError: division by zero"),
        (TimeoutError(), "error: timeout: no result within 5 s"),
        (Refused(Code.BUSY, "16 calls are under way"), "error: busy: 16 calls are under way"),
    ],
)
async def test_a_tool_that_raises_is_a_sentence_for_the_model(rig: Rig, broken: Exception, read: str):
    rig.remotes.answers["f"] = broken
    rig.server.says(calling(("calc__f", {})), saying("Done."))
    await rig.ask("?", REMOTE)

    assert rig.results() == [read]


async def test_a_call_gets_what_is_left_of_the_runs_time(rig: Rig):
    rig.limits = Limits(time_ms=2_000)
    rig.server.says(calling(("calc__stuck", {})))
    ended = await rig.ask("?", REMOTE)

    assert ended["reason"] == "limit_time"
    assert rig.remotes.cancelled == ["stuck"]


async def test_the_runs_time_ends_a_model_that_goes_on_and_on(rig: Rig):
    rig.limits = Limits(time_ms=250)
    rig.server.says(dripping({"text": "x"}, 0.05, 100))
    ended = await rig.ask("hi")

    assert ended["reason"] == "limit_time"
    assert next(event["content"] for event in rig.log if event.get("interrupted")).startswith("xx")


async def test_a_silent_model_ends_in_an_error_and_the_thread_goes_on(rig: Rig):
    """B63: an error event within the idle limit; the next message is answered; nothing is said twice."""
    rig.server.says(steps({"text": "Hel"}, {"stall": True}), saying("Again."))
    ended = await rig.ask("hi")

    assert (ended["reason"], ended["error"]["code"]) == ("error", "timeout")
    assert [event["content"] for event in rig.log if event.get("interrupted")] == ["Hel"]
    assert (await rig.ask("hi?"))["reason"] == "answer"
    assert [message["content"] for message in rig.server.requests[1]["messages"]] == [
        "Be brief.",
        "hi",
        "hi?",
    ]


async def test_a_model_that_always_wants_a_tool_is_stopped(rig: Rig):
    """B64: the same tool every round."""
    rig.limits = Limits(steps=4)
    rig.server.says(calling(("calc__f", {})), then="repeat")
    ended = await rig.ask("loop", REMOTE)

    assert (ended["reason"], len(rig.server.requests), len(rig.remotes.called)) == ("limit_steps", 4, 3)


@contextlib.asynccontextmanager
async def working(rig: Rig, content: str) -> AsyncIterator[asyncio.Task[Event]]:
    task = asyncio.ensure_future(rig.ask(content, REMOTE))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_cancelling_while_the_model_speaks_takes_effect_at_once(rig: Rig):
    """B59: cancel mid-stream with half a call received; the next turn is accepted. B64: cancel works at any round."""
    half = {
        "delta": {
            "tool_calls": [{"index": 0, "id": "a", "function": {"name": "calc__f", "arguments": '{"x'}}]
        }
    }
    rig.server.says(steps({"text": "Hel"}, half, {"stall": True}), saying("Yes?"))
    async with working(rig, "hi") as run:
        await eventually(lambda: any(event["type"] == "delta" for event in rig.log))
        began = time.monotonic()
        rig.cancelled.set()
        ended = await run

    assert time.monotonic() - began < 2  # neither the model nor the call would have ended by itself
    assert ended["reason"] == "cancelled"
    await eventually(lambda: rig.server.state.open_streams == 0, timeout=2)
    rig.cancelled.clear()
    assert (await rig.ask("hi?"))["reason"] == "answer"
    assert not rig.server.state.refused


async def test_cancelling_calls_leaves_a_history_that_the_provider_takes(rig: Rig):
    """B59: two parallel calls pending, cancel, then "hi": accepted, the cancelled id answered, no call run twice."""
    rig.server.says(calling(("calc__stuck", {}), ("calc__f", {})), saying("Yes?"))
    async with working(rig, "both") as run:
        await eventually(lambda: any(event["type"] == "tool_result" for event in rig.log))
        began = time.monotonic()
        rig.cancelled.set()
        await run

    assert time.monotonic() - began < 2  # neither the model nor the call would have ended by itself
    assert rig.remotes.cancelled == ["stuck"]
    rig.cancelled.clear()
    assert (await rig.ask("hi"))["reason"] == "answer"
    assert rig.results() == ["error: cancelled: the run was cancelled before this call had ended", "sunny"]
    assert not rig.server.state.refused
    assert len(rig.remotes.called) == 2


async def test_a_run_cancelled_before_it_began_asks_nobody(rig: Rig):
    rig.cancelled.set()
    ended = await rig.ask("hi")

    assert (ended["reason"], rig.server.requests) == ("cancelled", [])


async def test_cancelling_does_not_wait_for_remotes_that_answer_slowly(rig: Rig):
    rig.remotes.slow = 60.0
    async with working(rig, "hi") as run:
        await eventually(lambda: rig.remotes.asked)
        rig.cancelled.set()
        async with asyncio.timeout(0.25):
            ended = await run

    assert (ended["reason"], rig.server.requests) == ("cancelled", [])


async def test_a_killed_worker_is_followed_by_one_that_goes_on(rig: Rig):
    """B59: kill the agent with two calls pending: the finished result is used, the other told as interrupted."""
    rig.server.says(calling(("calc__stuck", {}), ("calc__f", {})), saying("Half of it."))
    async with working(rig, "both") as run:
        await eventually(lambda: any(event["type"] == "tool_result" for event in rig.log))
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    thread = fold("t", rig.log)
    run_id = thread.next_run()

    assert run_id is not None
    assert (await rig.work(run_id, thread))["reason"] == "answer"
    assert rig.results()[0].startswith("error: unavailable: interrupted")
    assert rig.results()[1] == "sunny"
    assert len(rig.remotes.called) == 2


async def test_a_log_that_takes_nothing_more_stops_the_run(rig: Rig):
    async def lost(event: Event, *, confirm: bool) -> None:
        raise Unavailable("another owner writes this log")

    run_id = rig.write("hi")
    agent = Agent(ExpertAgent(rig.remotes, rig.model, rig.limits))
    with pytest.raises(ExceptionGroup) as caught:
        await agent.received_message("ada", fold("t", rig.log), run_id, lost, asyncio.Event())

    assert caught.group_contains(Unavailable)
    assert rig.server.requests == []


async def test_remotes_that_cannot_be_read_end_the_run_and_say_so(rig: Rig):
    rig.remotes.away = True
    ended = await rig.ask("hi", REMOTE)

    assert ended["error"] == {"code": "unavailable", "message": "the remotes cannot be read: nobody answers"}


async def test_a_remote_that_is_not_connected_and_tools_without_room_are_named(rig: Rig):
    """B14: 150 functions: the request carries 128, the turn succeeds, the rest is visible."""
    rig.remotes.remotes = {f"r{number}": [f"f{each:02}" for each in range(50)] for number in range(3)}
    rig.server.says(saying("Hello."))
    resources = [{**REMOTE, "content": name} for name in ("r0", "gone", "r1", "r2")]
    ended = await rig.ask("hi", *resources)
    begun = next(event for event in rig.log if event.get("state") == "running")

    assert ended["reason"] == "answer"
    assert len(rig.server.requests[0]["tools"]) == 128
    assert (begun["missing_remotes"], len(begun["dropped_tools"])) == (["gone"], 22)


async def test_odd_function_names_are_called_under_their_own(rig: Rig):
    """B09: the turn succeeds, the call reaches the remote byte for byte. B11: names that look alike stay apart."""
    odd = ["calendar.respondToEvent", "get weather", "naïve", "a" * 65, "x.y", "x_y", "😀"]
    rig.remotes.remotes = {"my cal": odd}
    rig.remotes.answers = dict.fromkeys(odd, 1)
    rig.server.says(saying("Hello."))
    await rig.ask("hi", {**REMOTE, "content": "my cal"})
    names = [tool["function"]["name"] for tool in rig.server.requests[0]["tools"]]
    rig.server.says(calling(*((name, {}) for name in names)), saying("Done."))
    await rig.ask("all of them")

    assert [each[:2] for each in rig.remotes.called] == [("my cal", name) for name in odd]
    assert not rig.server.state.refused


async def test_without_a_key_the_stand_in_calls_tools_and_answers_from_the_results(rig: Rig):
    """The whole loop by the rules of the scripted model, as somebody without a key sees it."""
    ended = await rig.ask("call calc.f {}\ncall calc.fail {}", REMOTE)

    assert ended["reason"] == "answer"
    assert "not an AI" in rig.texts()[0]
    assert (
        rig.texts()[1] == "calc__f answered: sunny\ncalc__fail failed: disconnected: the remote disconnected"
    )


async def test_what_is_said_during_a_run_waits_for_its_end(rig: Rig):
    rig.server.says(calling(("calc__f", {})), saying("One."), saying("Two."))
    first = rig.write("first", REMOTE)
    second = rig.write("second")
    await rig.work(first)
    await rig.work(second)

    assert [message.get("content") for message in rig.server.requests[1]["messages"]] == [
        "Be brief.",
        "first",
        None,
        "sunny",
    ]
    assert [message["role"] for message in rig.server.requests[2]["messages"]][-2:] == ["assistant", "user"]
