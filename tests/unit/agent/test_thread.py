"""A thread folded from its log."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tieline_agent import events, results
from tieline_agent.assembly import Usage
from tieline_agent.thread import INTERRUPTED, NOT_STARTED, Thread, fold
from tieline_protocol.errors import Code

CALL = {"id": "c", "name": "a__f", "arguments": "{}"}


def asked(*more: dict[str, Any]) -> Thread:
    return fold("t", [events.user_message("m", "r", "hi"), *more])


def test_a_message_heard_twice_changes_nothing_and_has_the_same_answer():
    thread = Thread("t")
    answer, said = thread.received("c1", "hi", [])
    for event in said:
        thread.apply(event)

    assert thread.received("c1", "hi", []) == (answer, [])
    assert [event["type"] for event in said] == ["message", "run"]
    assert thread.next_run() == answer["run_id"]


def test_a_message_whose_run_was_not_told_yet_is_still_open():
    assert asked().next_run() == "r"


def test_runs_are_worked_on_in_the_order_in_which_people_asked():
    thread = asked(events.user_message("m2", "r2", "and?"))

    assert thread.next_run() == "r"
    thread.apply(events.run_ended("r", "answer", Usage()))
    assert thread.next_run() == "r2"
    thread.apply(events.run_ended("r2", "cancelled", Usage()))
    assert thread.next_run() is None


def test_a_run_whose_message_is_not_known_is_nobodys_work():
    assert fold("t", [events.run_running("r", 5, {})]).next_run() is None


def test_of_two_ends_the_first_counts_and_nothing_comes_after_it():
    thread = asked(
        events.run_ended("r", "cancelled", Usage()),
        events.run_ended("r", "answer", Usage()),
        events.answer("r", "m1", "late", "stop", Usage()),
    )

    assert (thread.runs["r"].reason, thread.runs["r"].steps) == ("cancelled", [])


def test_a_run_begins_once():
    thread = asked(events.run_running("r", 5, {}), events.run_running("r", 9, {}), events.run_queued("r"))

    assert (thread.runs["r"].state, thread.runs["r"].started) == ("running", 5)


def test_resources_count_from_the_message_on_that_brought_them():
    browser = {"kind": "system", "subkind": "remote", "content": "browser"}
    thread = fold(
        "t",
        [
            events.user_message("m", "r", "hi"),
            events.user_message("m2", "r2", "now", [browser]),
            events.user_message("m3", "r3", "later"),
        ],
    )

    assert [thread.resources(run) for run in ("r", "r2", "r3")] == [[], [browser], [browser]]
    assert thread.resources("a run that nobody knows") == [browser]


def test_pieces_stand_until_the_answer_is_whole():
    thread = asked(
        events.reasoning("r", "a", "hm"), events.delta("r", "a", "Hel"), events.delta("r", "a", "lo")
    )
    partial = thread.runs["r"].partial

    assert partial is not None
    assert ("".join(partial.pieces), partial.size) == ("Hello", 7)
    thread.apply(events.answer("r", "a", "Hello", "stop", Usage(3, 2)))
    thread.apply(events.delta("r", "a", "late"))
    assert thread.runs["r"].partial is None
    assert (thread.runs["r"].requests, thread.runs["r"].usage) == (1, Usage(3, 2))


def test_an_interrupted_answer_uses_its_number_up():
    thread = asked(events.delta("r", "a", "Hel"), events.interrupted("r", "a", "Hel"))

    assert (thread.runs["r"].requests, thread.runs["r"].steps) == (1, [])


def test_an_answer_told_twice_counts_once():
    told = events.answer("r", "a", "Hello", "stop", Usage(3, 2))

    assert asked(told, told).runs["r"].requests == 1


def test_a_call_knows_whether_it_was_begun_and_how_it_ended():
    thread = asked(events.answer("r", "a", "", "tool_calls", Usage(), [CALL]))
    call = thread.runs["r"].call("c")

    assert call is not None
    assert call.told() is NOT_STARTED
    thread.apply(events.tool_call("r", "c", "a__f", "a", "f", {}))
    assert call.told() is INTERRUPTED
    thread.apply(events.tool_result("r", "c", results.success(0)))
    thread.apply(events.tool_result("r", "c", results.failure(Code.TIMEOUT, "second")))
    assert call.told() == results.success(0)
    assert (thread.runs["r"].tool_calls, thread.runs["r"].steps[0].open_calls) == (1, [])


def test_calls_that_are_no_calls_are_left_out():
    odd: list[Any] = ["c", 1, CALL]

    assert asked(events.answer("r", "a", "", "tool_calls", Usage(), odd)).runs["r"].tool_calls == 1


def test_what_belongs_to_nothing_changes_nothing():
    thread = asked(
        {"type": "tool_result", "run_id": "r", "tool_call_id": "nobody", "result": 1},
        {"type": "tool_progress", "run_id": "r", "tool_call_id": "nobody"},
        {"type": "run", "run_id": "r", "state": "odd"},
        events.user_message("again", "r", "another text"),
    )

    assert thread == asked(
        {"type": "tool_result", "run_id": "r", "tool_call_id": "nobody", "result": 1},
    )
    assert thread.runs["r"].content == "hi"


def test_a_new_owner_is_counted():
    opening = {"type": "epoch", "previous": 1, "last": 2, "clean": True}

    assert asked(opening, opening).openings == 2


values = (
    st.none()
    | st.integers()
    | st.sampled_from(["r", "a", "c", "user", "assistant", "running", "ended", "queued", "stop"])
)
odd = st.lists(values | st.dictionaries(st.sampled_from(["id", "name", "input_tokens", "estimated"]), values))
fields = [
    "run_id",
    "message_id",
    "role",
    "state",
    "text",
    "content",
    "tool_call_id",
    "started",
    "interrupted",
]
any_event = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["message", "run", "delta", "reasoning", "tool_call", "tool_result", "tool_progress", "gap"]
        )
    },
    optional={
        **dict.fromkeys(fields, values),
        "run_id": st.just("r"),
        "tool_calls": odd | values,
        "resources": odd | values,
        "usage": values | st.dictionaries(st.sampled_from(["input_tokens", "output_tokens"]), values),
        "error": values,
        "code": odd | values,
    },
)


@given(st.lists(any_event, max_size=12))
def test_no_log_is_so_odd_that_a_thread_cannot_be_folded(log: list[dict[str, Any]]):
    assert fold("t", log) == fold("t", log)
