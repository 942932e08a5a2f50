"""The agent's worker dies at every point of a scripted run with tool calls: the pure cores, joined in memory.

A person writes three messages, one of them while tools run; the model thinks, speaks and calls tools in parallel; the
log is made of the batches that a broker would store, with late and lost ones. Whoever owns the thread next folds it
from there. What unit tests hold of one core is not repeated here: this is what the person sees in the end.
"""

import itertools
import random
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import pytest
from tieline_agent import history, order, results
from tieline_agent.assembly import CallDelta, Finished, ReasoningDelta, TextDelta, Usage
from tieline_agent.events import Event
from tieline_agent.facts import AskModel, CallEnded, End, Fact, Record, StartCall
from tieline_agent.limits import Limits
from tieline_agent.run import Run
from tieline_agent.thread import fold
from tieline_ops.scripted_model import validation
from tieline_protocol import batch, jsontext
from tieline_protocol.batch import Batch
from tieline_protocol.naming import Pair
from tieline_protocol.numbering import Numbering

TOOLS = {"a__f": Pair("a", "f"), "a__g": Pair("a", "g")}
SAID = ["use your tools", "and say hello", "thank you"]
WHOLE = Finished("stop", Usage(10, 2))
CALLS = Finished("tool_calls", Usage(10, 2))


def reply(messages: list[dict[str, Any]]) -> list[Fact]:
    """What the model says: the same to the same history."""
    asked = max(place for place, message in enumerate(messages) if message["role"] == "user")
    step = sum(message["role"] == "assistant" for message in messages[asked:])
    if messages[asked]["content"] != SAID[0]:
        return [TextDelta("At "), TextDelta("once"), TextDelta("."), WHOLE]
    match step:
        case 0:
            parallel = [
                ("a", "a__f", '{"n":1}'),
                ("b", "a__g", '{"n":2}'),
                ("c", "gone", "{}"),
                ("d", "a__f", '{"n'),
            ]
            calls = [CallDelta(index, *call) for index, call in enumerate(parallel)]
            return [ReasoningDelta("Hm"), TextDelta("I will "), TextDelta("look."), *calls, CALLS]
        case 1:
            return [TextDelta("Once "), TextDelta("more."), CallDelta(0, "e", "a__f", '{"n":3}'), CALLS]
    return [TextDelta("The "), TextDelta("answer"), TextDelta("."), WHOLE]


class Crash(Exception):
    """The worker is gone."""


class World:
    """Everything but the worker. `unconfirmed` says what becomes of its last words: stored, lost, or stored late."""

    def __init__(self, crashes: tuple[int, ...] = (), unconfirmed: str = "stored") -> None:
        self.crashes = crashes
        self.unconfirmed = unconfirmed
        self.ticks = 0
        self.epochs = itertools.count(7, 3)
        self.stored: list[Batch] = []
        self.pending: list[Batch] = []
        self.late: list[Batch] = []
        self.answered: set[str] = set()
        self.executed: Counter[tuple[str, int]] = Counter()
        self.shown: dict[str, str] = {}  # what somebody who watches concatenates, by message

    def tick(self) -> None:
        """A moment in which the worker may die."""
        self.ticks += 1
        if self.ticks in self.crashes:
            raise Crash

    def log(self) -> list[Event]:
        return [event for _, event in order.events(enumerate(self.stored, 1))]

    def publish(self, outgoing: bytes) -> None:
        """Heard live at once; in the log when it is stored."""
        whole = batch.decode(outgoing)
        self.pending.append(whole)
        for record in batch.events(whole):
            if record.event["type"] == "delta":
                message_id = str(record.event["message_id"])
                self.shown[message_id] = self.shown.get(message_id, "") + str(record.event["text"])

    def confirm(self) -> None:
        self.stored += self.pending
        self.pending.clear()

    def crashed(self) -> None:
        if self.unconfirmed == "stored":
            self.confirm()
        elif self.unconfirmed == "late":
            self.late += self.pending
        self.pending.clear()


class Worker:
    """An owner of the thread, from its opening to the end of all work, or to its death."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.numbering = Numbering("ada", "t", "thread", next(world.epochs))
        before = world.stored[-1] if world.stored else None
        opening = self.numbering.opening(
            before.epoch if before else 0, before.last if before else 0, before is None, 0
        )
        world.publish(opening.data)
        world.confirm()
        world.stored += world.late  # a dead owner's words, after the opening of the next
        world.late.clear()
        self.thread = fold("t", world.log())

    def record(self, event: Event, confirm: bool) -> None:
        self.world.tick()
        for outgoing in (
            *self.numbering.received(event["type"], [jsontext.dumps(event)], 0),
            *self.numbering.flush(),
        ):
            self.world.publish(outgoing.data)
        if confirm:
            self.world.tick()
            self.world.confirm()

    def hear(self, said: str) -> None:
        """A person's message; whoever gets no answer sends it again."""
        _, events = self.thread.received(said, said, [])
        for event in events:
            self.thread.apply(event)
            self.record(event, confirm=event is events[-1])
        self.world.tick()
        self.world.answered.add(said)

    def work(self) -> None:
        for said in SAID:
            if said not in self.world.answered:
                self.hear(said)
            while (run_id := self.thread.next_run()) is not None:
                self.carry_out(run_id)

    def carry_out(self, run_id: str) -> None:
        run = Run(self.thread, run_id, TOOLS, Limits())
        effects = run.start(1_000)
        facts: deque[Fact] = deque()
        while True:
            for effect in effects:
                match effect:
                    case Record(event, confirm):
                        self.record(event, confirm)
                    case AskModel(messages):
                        self.world.tick()
                        validation.check({"model": "m", "messages": messages})
                        facts = deque(reply(messages))
                    case StartCall(tool_call_id, name, arguments):
                        self.world.tick()
                        self.world.executed[run_id, arguments["n"]] += 1
                        self.world.tick()
                        facts.appendleft(CallEnded(tool_call_id, results.success(f"{name} did")))
                        if SAID[1] not in self.world.answered:
                            self.hear(SAID[1])
                    case End():
                        return
            effects = run.received(facts.popleft())


def survived(crashes: tuple[int, ...] = (), unconfirmed: str = "stored") -> World:
    """The world after all is done, however often the worker died; what must hold is looked at."""
    world = World(crashes, unconfirmed)
    for _ in range(len(crashes) + 1):
        try:
            Worker(world).work()
            break
        except Crash:
            world.crashed()
    look_at(world)
    return world


def look_at(world: World) -> None:
    log = world.log()
    thread = fold("t", log)
    said = [event for event in log if event["type"] == "message"]
    asked = [event["content"] for event in said if event["role"] == "user"]
    whole = [event for event in said if event["role"] == "assistant" and not event.get("interrupted")]
    assert asked == SAID, "each message once, in order"
    assert [event["content"] for event in whole if "tool_calls" not in event] == [
        "The answer.",
        "At once.",
        "At once.",
    ]
    assert [event["reason"] for event in log if event.get("state") == "ended"] == ["answer"] * 3
    assert set(world.executed.values()) <= {1}, "no tool runs twice"
    told = Counter(
        (event["run_id"], event["tool_call_id"]) for event in log if event["type"] == "tool_result"
    )
    assert set(told.values()) == {1}
    assert len(told) == sum(len(event.get("tool_calls", ())) for event in whole)
    for event in said:
        if event["role"] == "assistant":
            shown = world.shown.get(event["message_id"], "")
            assert shown == event["content"] or (
                event.get("interrupted") and shown.startswith(event["content"])
            )
    for run_id in thread.runs:
        validation.check({"model": "m", "messages": history.messages(thread, run_id)})


POINTS = survived().ticks
FATES = ("stored", "lost", "late")


def test_without_a_crash_every_tool_runs() -> None:
    assert sorted(n for _, n in survived().executed) == [1, 2, 3]


@pytest.mark.parametrize("unconfirmed", FATES)
def test_a_worker_may_die_at_every_point_of_a_run(unconfirmed: str) -> None:
    """B59: 0 messages lost, 0 tools run twice, one answer each, no text shown twice."""
    for point in range(1, POINTS + 1):
        survived((point,), unconfirmed)

    print(f"{POINTS} points, last words {unconfirmed}")
    assert POINTS * len(FATES) >= 200


def test_its_successors_may_die_too() -> None:
    for crashes, unconfirmed in some_of_many(400, 4):
        survived(crashes, unconfirmed)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_every_pair_of_points_and_many_longer_rows() -> None:
    for first, second in itertools.combinations(range(1, POINTS + 20), 2):
        survived((first, second), FATES[(first + second) % 3])
    for crashes, unconfirmed in some_of_many(4_000, 8):
        survived(crashes, unconfirmed)


def some_of_many(number: int, most: int) -> Iterator[tuple[tuple[int, ...], str]]:
    """Rows of up to `most` crashes, the same in each run of the tests."""
    chance = random.Random(1)
    for _ in range(number):
        crashes = sorted(chance.sample(range(1, POINTS + 10 * most), chance.randint(2, most)))
        yield tuple(crashes), chance.choice(FATES)
