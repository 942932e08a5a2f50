"""What holds for every payload."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from tieline_protocol import frontend
from tieline_protocol.frontend import ACTIONS

from tests.support.carried import carries, refused


def test_what_an_action_carries_goes_on_without_what_is_unknown_or_null() -> None:
    assert carries("agent.prompt", text="x", queue=None, more=1) == {"text": "x"}


def test_an_id_is_one_token() -> None:
    for odd in ("a.b", "s1\n", "", "x" * 65, 7):
        assert "session_id" in refused("agent.cancel", session_id=odd)


def test_what_is_wrong_is_said_in_our_words() -> None:
    assert refused("question.answer", question_id="q") == "answers, or rejected: true, is required"


def test_payloads_do_not_change() -> None:
    payload = frontend.payload(ACTIONS["shell.input"], {"session_id": "s1", "data": "x"})

    with pytest.raises(ValidationError):
        payload.data = "y"  # type: ignore[attr-defined]
