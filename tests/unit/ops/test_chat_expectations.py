"""What the second act of the demo looks for."""

import pytest
from tieline_ops import chat_expectations as chat
from tieline_ops.chat_expectations import FAILURE, KNOWN, TEMPERATURE, UNKNOWN

SAID = f"{TEMPERATURE}, and {FAILURE}"
GOOD = [
    {"type": "run", "state": "running"},
    {"type": "message", "role": "assistant", "message_id": "m1", "content": ""},
    {"type": "tool_result", "result": TEMPERATURE},
    {"type": "tool_result", "error": f"LookupError: {FAILURE}", "code": "internal"},
    {"type": "delta", "message_id": "m2", "text": SAID[:5]},
    {"type": "delta", "message_id": "m2", "text": SAID[5:]},
    {"type": "message", "role": "assistant", "message_id": "m2", "content": SAID},
    {"type": "run", "state": "ended", "reason": "answer"},
]
CITIES = [UNKNOWN, KNOWN]


def test_a_chat_in_which_all_is_seen_has_no_problems():
    assert chat.problems(GOOD, CITIES, together=True) == []
    assert chat.is_ended(GOOD)
    assert not chat.is_ended(GOOD[:-1])


@pytest.mark.parametrize("missing", range(2, len(GOOD)))
def test_whatever_is_missing_is_told(missing):
    assert chat.problems(GOOD[:missing] + GOOD[missing + 1 :], CITIES, together=True)


def test_calls_one_after_the_other_or_none_are_told():
    assert chat.problems(GOOD, CITIES, together=False)
    assert chat.problems(GOOD, [KNOWN], together=True)
    assert chat.problems([], [], together=True)


def test_the_question_names_both_calls():
    assert chat.QUESTION.count(f"call {chat.TOOL} ") == 2
    assert chat.TOOL in chat.PROMPT
