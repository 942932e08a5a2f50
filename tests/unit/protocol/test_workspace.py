"""The workspace: shell, files, processes."""

from __future__ import annotations

import pytest

from tests.support.carried import carries, refused


@pytest.mark.parametrize(
    ("action", "payload", "field"),
    [
        ("shell.resize", {"cols": "80", "rows": 24}, "cols"),
        ("shell.resize", {"cols": 0, "rows": 24}, "cols"),
        ("workspace.file-tree", {"depth": -1}, "depth"),
        ("workspace.file-content", {"path": ""}, "path"),
        ("process.start", {"command": "x", "kind": "other"}, "kind"),
    ],
)
def test_what_is_wrong_is_named(action: str, payload: dict[str, object], field: str) -> None:
    assert field in refused(action, **payload)


def test_what_is_typed_goes_on_as_it_is() -> None:
    assert carries("shell.input", data="ls\r") == {"data": "ls\r"}
