import json
from typing import Any

import pytest
from tieline_agentctl.mcp_questions import BadQuestion, asked, told

OPTIONS = [{"label": "Postgres", "description": "server"}, {"label": "SQLite", "description": "file"}]


def question(**more: Any) -> dict[str, Any]:
    return {"prompt": "Which DB?", "options": OPTIONS, **more}


def test_questions_and_options_get_ids():
    given = {"questions": [question(title="DB"), question(options=["a", {"label": "b"}])], "context": "new"}

    assert asked(given, "sess-41") == {
        "session_id": "sess-41",
        "questions": [
            {
                "id": "q1",
                "prompt": "Which DB?",
                "title": "DB",
                "options": [
                    {"label": "Postgres", "description": "server", "option_id": "q1_opt1"},
                    {"label": "SQLite", "description": "file", "option_id": "q1_opt2"},
                ],
            },
            {
                "id": "q2",
                "prompt": "Which DB?",
                "options": [
                    {"label": "a", "description": "", "option_id": "q2_opt1"},
                    {"label": "b", "description": "", "option_id": "q2_opt2"},
                ],
            },
        ],
        "context": "new",
    }


def test_a_context_is_not_needed():
    assert asked({"questions": [question()], "context": 7}, "")["context"] == ""


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({}, "questions must be a list of 1 to 4"),
        ({"questions": []}, "questions must be a list of 1 to 4"),
        ({"questions": [question()] * 5}, "questions must be a list of 1 to 4"),
        ({"questions": ["Which?"]}, "questions[0] must be an object"),
        ({"questions": [question(), question(prompt=" ")]}, "questions[1].prompt must be a text"),
        ({"questions": [question(options=OPTIONS[:1])]}, "questions[0].options must be a list of 2 to 6"),
        ({"questions": [question(options=["a", 1])]}, "questions[0].options[1] must be an object"),
        ({"questions": [question(options=["a", {}])]}, "questions[0].options[1].label must be a text"),
    ],
)
def test_what_is_wrong_with_a_question_is_said_for_the_model(given: dict[str, Any], wrong: str):
    with pytest.raises(BadQuestion) as caught:
        asked(given, "")

    assert str(caught.value) == wrong


def test_an_answer_is_told_in_the_words_of_the_question():
    payload = asked({"questions": [question(), question(prompt="Why?")]}, "")
    answer = {
        "answers": [
            {"question_id": "q1", "selected_options": ["q1_opt2", "other", 3]},
            {"question_id": "q2", "selected_options": None, "custom_text": "because"},
        ]
    }

    assert json.loads(told(answer, payload)) == {
        "answers": [
            {
                "question": "Which DB?",
                "question_id": "q1",
                "selected_options": ["q1_opt2", "other", 3],
                "selected_labels": ["SQLite", "other"],
            },
            {
                "question": "Why?",
                "question_id": "q2",
                "selected_options": None,
                "custom_text": "because",
                "selected_labels": [],
            },
        ]
    }


@pytest.mark.parametrize(
    "answer",
    [{"rejected": True, "reject_reason": "later"}, None, "yes", {"answers": "none"}, {"answers": [1]}],
)
def test_any_other_answer_is_told_as_it_is(answer: Any):
    assert json.loads(told(answer, asked({"questions": [question()]}, ""))) == answer


def test_an_answer_to_a_question_that_was_not_asked_has_no_words():
    answer = {"answers": [{"question_id": "q9", "selected_options": []}]}
    heard = json.loads(told(answer, asked({"questions": [question()]}, "")))

    assert heard == {"answers": [{"question_id": "q9", "selected_options": [], "selected_labels": []}]}
