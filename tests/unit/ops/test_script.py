"""Scripts of the scripted model: replies in order, and what each step does on the wire."""

import json
from typing import Any

import pytest
from tieline_ops.scripted_model import script
from tieline_ops.scripted_model.answers import Answer
from tieline_ops.scripted_model.script import Comments, Cut, Script, Send, Wait

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi there"}]}


def chunks(*steps: dict[str, Any]) -> list[Any]:
    """The stream of some steps: parsed chunks, other acts and lines as they are."""
    return [
        json.loads(act.data[6:]) if isinstance(act, Send) and act.data.startswith(b"data: {") else act
        for act in script.acts(list(steps), BODY, 3)
    ]


def test_replies_come_in_order_and_then_the_rules():
    given = Script([{"status": 500}, {"status": 429}])

    assert [given.next(), given.next(), given.next()] == [{"status": 500}, {"status": 429}, None]


def test_a_script_may_start_again_or_refuse_at_its_end():
    repeating, refusing = Script([{"status": 500}], "repeat"), Script([], "refuse")

    assert [repeating.next(), repeating.next()] == [{"status": 500}] * 2
    assert (refusing.next() or {})["status"] == 500
    assert Script([], "repeat").next() is None


def test_only_good_answers_are_kept_from_bad_requests():
    assert script.is_checked(None)
    assert script.is_checked({"steps": []})
    assert not script.is_checked({"status": 429})
    assert not script.is_checked({"unchecked": True})


def test_a_file_is_read_strictly():
    assert Script.parse(b'{"replies": [{"steps": []}], "then": "repeat"}').then == "repeat"
    for text in ("[]", '{"replies": 1}', '{"replies": [], "then": "odd"}', "{"):
        with pytest.raises(ValueError, match=r"script|then|Expecting"):
            Script.parse(text)


def test_steps_without_an_end_end_well():
    *_, finish, usage, done = chunks({"text": "Hello"}, {"reasoning": "hm"})

    assert finish["choices"][0]["finish_reason"] == "stop"
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + 1
    assert done == Send(b"data: [DONE]\n\n")


def test_a_call_comes_in_as_many_pieces_as_wanted():
    first, *pieces, finish, _, _ = chunks({"call": {"name": "f", "arguments": {"a": "é"}, "pieces": 3}})
    function = first["choices"][0]["delta"]["tool_calls"][0]
    texts = [piece["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] for piece in pieces]

    assert (function["id"], function["index"], function["function"]["name"]) == ("call_3_0", 0, "f")
    assert ("".join(texts), len(texts)) == ('{"a": "é"}', 3)
    assert finish["choices"][0]["finish_reason"] == "tool_calls"


def test_a_call_may_have_any_index_and_id_or_none():
    call = chunks({"call": {"name": "f", "index": 0, "id": None}})[0]["choices"][0]["delta"]["tool_calls"][0]

    assert (call["index"], call["id"]) == (0, None)


@pytest.mark.parametrize(
    ("step", "act"),
    [
        ({"done": True}, Send(b"data: [DONE]\n\n")),
        ({"raw": "\xff\n"}, Send(b"\xff\n")),
        ({"comment": "x"}, Send(b": x\n\n")),
        ({"wait": 2}, Wait(2)),
        ({"comments": 0.1}, Comments(0.1)),
        ({"stall": True}, Wait(None)),
        ({"cut": True}, Cut()),
    ],
)
def test_oddities_are_done_as_written(step: dict[str, Any], act: script.Act):
    assert next(script.acts([step], BODY, 0)) == act


def test_any_delta_and_any_chunk_can_be_written():
    delta, chunk, finish, usage = chunks(
        {"delta": {"content": None}}, {"chunk": {"choices": None}}, {"finish": "length"}, {"usage": [1, 2]}
    )

    assert delta["choices"][0]["delta"] == {"content": None}
    assert chunk == {"choices": None}
    assert finish["choices"][0]["finish_reason"] == "length"
    assert usage["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def test_a_body_may_simply_end_and_an_unknown_step_is_an_error():
    assert len(chunks({"text": "x"}, {"end": True})) == 1
    with pytest.raises(ValueError, match="no step 'txet'"):
        chunks({"txet": "x"})


def test_an_answer_by_the_rules_can_be_streamed_or_whole():
    reply = script.by_rules(Answer("Calling two.", (("f", '{"a":1}'), ("g", "{}"))))
    sent = [*script.acts(reply["steps"], BODY, 1), Wait(0)]
    whole = script.whole(sent, "m", 1)
    message = whole["choices"][0]["message"]

    assert message["content"] == "Calling two."
    assert [(call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]] == [
        ("f", '{"a":1}'),
        ("g", "{}"),
    ]
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    assert whole["usage"]["completion_tokens"] > 0
    assert "tool_calls" not in script.whole([Send(b"data: [DONE]\n\n")], "m", 1)["choices"][0]["message"]
