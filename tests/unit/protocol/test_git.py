"""Git in the workspace."""

from __future__ import annotations

import pytest
from tieline_protocol import frontend
from tieline_protocol.errors import Code, Refused

from tests.support.carried import carries
from tests.support.carried import refused as named


@pytest.mark.parametrize("name", ["create-pr", "push-preflight", "contribution-replace", "contribution-use"])
def test_what_needs_a_forge_does_not_exist(name: str) -> None:
    with pytest.raises(Refused) as refused:
        frontend.action(f"git.{name}")

    assert refused.value.code is Code.UNKNOWN_ACTION


@pytest.mark.parametrize(
    ("action", "payload", "field"),
    [
        ("git.abort", {"operation": "push"}, "operation"),
        ("git.discard", {"paths": []}, "paths"),
        ("git.commit", {}, "message"),
        ("git.log", {"limit": 501}, "limit"),
    ],
)
def test_what_is_wrong_is_named(action: str, payload: dict[str, object], field: str) -> None:
    assert field in named(action, **payload)


def test_a_commit_carries_what_was_given() -> None:
    assert carries("git.commit", message="m", amend=True) == {"message": "m", "amend": True}
