"""Histories that providers take, whatever happened."""

from tieline_agent import events, history, results
from tieline_agent.assembly import Usage
from tieline_agent.thread import fold
from tieline_ops.scripted_model import validation
from tieline_protocol.errors import Code

TWO = [
    {"id": "a", "name": "x__f", "arguments": '{"n":1}'},
    {"id": "b", "name": "opne tab", "arguments": "not json"},
]
LOG = [
    events.user_message("m", "r", "hi"),
    events.run_running("r", 0, {}),
    events.delta("r", "a0", "Let me"),
    events.interrupted("r", "a0", "Let me"),
    events.answer("r", "a1", "", "tool_calls", Usage(), TWO),
    events.tool_call("r", "a", "x__f", "x", "f", {"n": 1}),
    events.tool_result("r", "b", results.failure(Code.NOT_FOUND, "unknown tool 'opne tab'")),
    events.user_message("m2", "r2", "hurry"),
    events.tool_result("r", "a", results.success([])),
    events.answer("r", "a2", "", "stop", Usage()),
    events.answer("r", "a3", "Done.", "stop", Usage()),
    events.run_ended("r", "answer", Usage()),
]


def test_results_stand_in_call_order_directly_after_their_answer():
    """B56: both tool messages, in call order. B54: broken arguments stand as {}. B58: an unknown name made fit."""
    assert history.messages(fold("t", LOG), "r2", "Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "x__f", "arguments": '{"n":1}'}},
                {"id": "b", "type": "function", "function": {"name": "opne_tab", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "[]"},
        {"role": "tool", "tool_call_id": "b", "content": "error: not_found: unknown tool 'opne tab'"},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "hurry"},
    ]


def test_what_is_said_while_a_run_goes_on_is_not_put_between_its_calls_and_their_results():
    messages = history.messages(fold("t", LOG[:8]), "r")

    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]
    assert "interrupted" in messages[2]["content"]


def test_after_every_prefix_the_history_is_valid():
    """B59: cut off anywhere, the next request is taken."""
    for end in range(1, len(LOG) + 1):
        thread = fold("t", LOG[:end])
        for run in thread.runs:
            validation.check({"model": "m", "messages": history.messages(thread, run)})


def test_the_oldest_runs_are_left_out_whole_and_the_asking_one_never():
    log = [events.user_message(f"m{n}", f"r{n}", "x" * 100) for n in range(10)]
    thread = fold("t", log)

    assert len(history.messages(thread, "r9", most=350)) == 3
    assert len(history.messages(thread, "r9", most=1)) == 1
    assert len(history.messages(thread, "r9")) == 10


def test_a_size_counts_text_and_calls():
    assert history.size({"role": "user", "content": "four"}) == 4
    assert history.size(history.messages(fold("t", LOG), "r")[1]) > 9


def test_a_run_whose_message_the_log_no_longer_has_still_has_a_history():
    assert history.messages(fold("t", LOG[1:7]), "r")[0]["role"] == "assistant"
