"""Sessions: opened, listed, watched."""

from __future__ import annotations

import pytest

from tests.support.carried import carries, refused


@pytest.mark.parametrize(
    ("action", "payload", "field"),
    [
        ("session.subscribe", {"logs": ["thread"]}, "logs"),
        ("session.subscribe", {"logs": []}, "logs"),
        ("session.subscribe", {"cursors": {"other": "x"}}, "cursors"),
        ("session.list", {"limit": True}, "limit"),
        ("session.list", {"limit": 0}, "limit"),
        ("session.open", {"workspace": ""}, "workspace"),
        ("session.rename", {}, "title"),
        ("auth", {"token": ""}, "token"),
    ],
)
def test_what_is_wrong_is_named(action: str, payload: dict[str, object], field: str) -> None:
    assert field in refused(action, **payload)


def test_a_session_is_opened_with_nothing_or_with_everything() -> None:
    everything = {"executor": "e", "workspace": "w", "agent": "a", "title": "t", "remotes": ["r"]}

    assert carries("session.open") == {}
    assert carries("session.open", **everything) == everything
