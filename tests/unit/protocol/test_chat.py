"""Chat threads."""

from __future__ import annotations

import pytest

from tests.support.carried import carries, refused


@pytest.mark.parametrize(
    ("action", "payload", "field"),
    [
        ("thread.message", {"content": ""}, "content"),
        ("thread.message", {"content": "x", "resources": [{"subkind": "remote"}]}, "kind"),
        ("thread.message", {"content": "x", "resources": ["remote"]}, "resources"),
        ("thread.get", {"thread_id": "a.b"}, "thread_id"),
        ("thread.create", {"model": ""}, "model"),
    ],
)
def test_what_is_wrong_is_named(action: str, payload: dict[str, object], field: str) -> None:
    assert field in refused(action, **payload)


def test_a_resource_goes_on_with_all_that_it_says() -> None:
    resource = {"kind": "system", "subkind": "remote", "content": "browser", "more": [1]}

    assert carries("thread.message", content="hi", resources=[resource])["resources"] == [resource]
