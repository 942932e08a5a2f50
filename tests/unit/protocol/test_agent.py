"""The coding agent: prompts, permissions, questions."""

from __future__ import annotations

import pytest

from tests.support.carried import carries, refused


@pytest.mark.parametrize(
    ("action", "payload", "field"),
    [
        ("agent.prompt", {}, "text"),
        ("agent.prompt", {"text": 7}, "text"),
        ("agent.prompt", {"text": "x", "client_message_id": ""}, "client_message_id"),
        ("agent.permissions.respond", {"request_id": "r", "pending_id": "p"}, "option_id"),
        ("question.answer", {"question_id": "q"}, "answers"),
        ("question.answer", {"question_id": "q", "rejected": True, "reject_reason": 7}, "reject_reason"),
    ],
)
def test_what_is_wrong_is_named(action: str, payload: dict[str, object], field: str) -> None:
    assert field in refused(action, **payload)


def test_a_decision_is_an_option_or_a_cancellation() -> None:
    assert carries("agent.permissions.respond", request_id="r", pending_id="p", cancelled=True)["cancelled"]
    neither = refused("agent.permissions.respond", request_id="r", pending_id="p")
    assert neither == "option_id, or cancelled: true, is required"
    assert carries("agent.permissions.respond", request_id="r", pending_id="p", option_id="o")["option_id"]


def test_a_question_is_answered_or_declined_with_or_without_a_reason() -> None:
    declined = {"question_id": "q", "rejected": True, "reject_reason": "later"}

    assert carries("question.answer", question_id="q", answers=[])["answers"] == []
    assert carries("question.answer", **declined) == declined
    assert carries("question.answer", question_id="q", rejected=True) == {
        "question_id": "q",
        "rejected": True,
    }
