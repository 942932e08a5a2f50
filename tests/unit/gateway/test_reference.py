"""The reference that ships is what the code does."""

from __future__ import annotations

from pathlib import Path

from tieline_gateway import reference
from tieline_gateway.close_codes import CloseCode
from tieline_protocol import frontend
from tieline_protocol.errors import Code

PAGE = Path(__file__).parents[3] / "docs" / "frontend-reference.md"


def test_the_reference_has_not_drifted() -> None:
    assert PAGE.read_text() == reference.text(), "run `python -m tieline_gateway.reference`"


def test_it_names_every_action_code_and_limit() -> None:
    text = reference.text()

    for action in frontend.ACTIONS:
        assert f"### `{action}`\n" in text
    for code in (*Code, *(str(int(close)) for close in CloseCode)):
        assert code in text
    assert "any |" not in text
