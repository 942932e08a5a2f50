"""What an agent asks the user, and what it hears."""

from __future__ import annotations

from typing import Any

import pytest
from tieline_protocol.errors import Code, ProtocolError, Refused, TielineError
from tieline_streams.questions import MOST, Answers, Questions

DATABASE = {
    "id": "q1",
    "prompt": "Which DB?",
    "title": "DB",
    "options": [
        {"label": "Postgres", "description": "server", "option_id": "q1_opt1"},
        {"label": "SQLite", "description": "file", "option_id": "q1_opt2"},
    ],
}
NAME = {"id": "q2", "prompt": "Which name?", "options": []}


def asked(*questions: dict[str, Any]) -> Questions:
    found = Questions()
    found.ask("m-1", {"session_id": "s", "context": "new project", "questions": list(questions)})
    return found


def code(work: Any, *args: Any) -> Code:
    with pytest.raises(TielineError) as caught:
        work(*args)
    return caught.value.code


def test_a_request_is_one_entry_with_all_its_questions() -> None:
    questions = asked(DATABASE, NAME)

    assert questions
    assert questions.event() == {
        "type": "questions",
        "open": [{"question_id": "m-1", "context": "new project", "questions": [DATABASE, NAME]}],
    }


def test_a_context_that_is_no_text_is_none() -> None:
    questions = Questions()
    questions.ask("m-1", {"questions": [NAME], "context": 5})

    assert questions.event()["open"][0]["context"] == ""


@pytest.mark.parametrize(
    "answers",
    [
        [{"question_id": "q2", "custom_text": "x"}, {"question_id": "q1", "selected_options": ["q1_opt2"]}],
        {"q1": {"selected_options": ["q1_opt2"]}, "q2": {"custom_text": "x"}},
        {"q1": ["q1_opt2"], "q2": "x"},
        {"q1": "q1_opt2", "q2": "x"},
    ],
)
def test_answers_reach_the_agent_in_the_order_of_its_questions_however_they_are_written(
    answers: Answers,
) -> None:
    questions = asked(DATABASE, NAME)
    reply = questions.answer("m-1", answers, False)

    assert reply == {
        "answers": [
            {"question_id": "q1", "selected_options": ["q1_opt2"]},
            {"question_id": "q2", "selected_options": [], "custom_text": "x"},
        ]
    }
    assert questions.event()["open"] == []


def test_a_user_may_choose_and_comment() -> None:
    answer = {"selected_options": ["q1_opt1", "q1_opt2"], "custom_text": "both"}

    assert asked(DATABASE).answer("m-1", {"q1": answer}, False) == {
        "answers": [{"question_id": "q1", **answer}]
    }


@pytest.mark.parametrize(
    "answers",
    [
        None,
        [],
        {},
        {"q1": ["q1_opt1"], "q9": "x"},
        {"q1": []},
        {"q1": ""},
        {"q1": 5},
        {"q1": {"selected_options": ["q2_opt1"]}},
        {"q1": {"selected_options": "q1_opt1"}},
        {"q1": {"selected_options": [5]}},
        {"q1": {"custom_text": 5}},
        [{"question_id": "q1", "custom_text": "x"}, {"question_id": "q1", "custom_text": "y"}],
        [{"custom_text": "x"}],
        ["q1_opt1"],
    ],
)
def test_an_answer_that_answers_something_else_is_refused_and_the_question_stays(
    answers: Answers | None,
) -> None:
    questions = asked(DATABASE)

    assert code(questions.answer, "m-1", answers, False) is Code.BAD_REQUEST
    assert questions


def test_a_question_without_proper_options_takes_words() -> None:
    questions = asked({"id": "q1", "options": ["a", {"option_id": 5}]}, {"id": "q2"})

    assert questions.answer("m-1", {"q1": "a", "q2": "b"}, False)["answers"] == [
        {"question_id": "q1", "selected_options": [], "custom_text": "a"},
        {"question_id": "q2", "selected_options": [], "custom_text": "b"},
    ]


def test_the_user_may_decline() -> None:
    reply = asked(DATABASE).answer("m-1", None, True)

    assert reply["rejected"] is True
    assert reply["answers"] == []
    assert reply["reject_reason"]


def test_only_the_first_answer_counts() -> None:
    questions = asked(DATABASE)
    questions.answer("m-1", {"q1": "q1_opt1"}, False)

    assert code(questions.answer, "m-1", {"q1": "q1_opt2"}, False) is Code.CONFLICT
    assert code(questions.answer, "m-2", {"q1": "q1_opt2"}, False) is Code.NOT_FOUND


def test_what_nobody_will_answer_is_closed_with_a_reason_for_the_agent() -> None:
    questions = asked(DATABASE)
    questions.ask("m-2", {"questions": [NAME]})
    closed = questions.close("the turn has ended")

    assert [id for id, _ in closed] == ["m-1", "m-2"]
    assert closed[0][1] == {"answers": [], "rejected": True, "reject_reason": "the turn has ended"}
    assert code(questions.answer, "m-1", None, True) is Code.CONFLICT
    assert questions.close("again") == []


def test_an_id_that_was_closed_may_be_asked_again() -> None:
    questions = asked(NAME)
    questions.close("x")
    questions.ask("m-1", {"questions": [NAME]})

    assert questions.answer("m-1", {"q2": "x"}, False)


def test_closed_questions_are_forgotten_in_the_end() -> None:
    questions = Questions()
    for number in range(1_100):
        questions.ask(f"m-{number}", {"questions": [NAME]})
        questions.close("x")

    assert code(questions.answer, "m-0", None, True) is Code.NOT_FOUND
    assert code(questions.answer, "m-1099", None, True) is Code.CONFLICT


@pytest.mark.parametrize(
    "wrong",
    [None, [], "x", [5], [{}], [{"id": ""}], [{"id": 5}], [NAME, NAME], [{"id": f"q{n}"} for n in range(17)]],
)
def test_a_request_that_asks_nothing_clear_is_refused(wrong: object) -> None:
    with pytest.raises(ProtocolError):
        Questions().ask("m-1", {"questions": wrong})


def test_a_flood_of_questions_or_a_giant_one_is_refused() -> None:
    questions = Questions()
    for number in range(MOST):
        questions.ask(f"m-{number}", {"questions": [NAME]})

    assert code(questions.ask, "more", {"questions": [NAME]}) is Code.BUSY
    assert code(asked(NAME).ask, "m-1", {"questions": [NAME]}) is Code.CONFLICT
    with pytest.raises(Refused) as caught:
        Questions().ask("m-1", {"questions": [{**NAME, "prompt": "x" * 70_000}]})
    assert caught.value.code is Code.TOO_LARGE
