from __future__ import annotations

from typing import Any

import pytest
from tieline_protocol.agentctl import Frame
from tieline_streams.workspace_callbacks import WorkspaceStreamCallbacks


def dispatched(value: dict) -> list[tuple[str, Any]]:
    calls: list[tuple[str, Any]] = []
    names = [
        "connected",
        "shell_output",
        "shell_exit",
        "process_output",
        "process_status",
        "git_status",
        "error",
    ]
    callbacks = WorkspaceStreamCallbacks(
        on_frames=lambda frames: calls.extend(("frame", frame.raw) for frame in frames),
        **{f"on_{name}": lambda *args, name=name: calls.append((name, *args)) for name in names},
    )
    callbacks.dispatch([Frame(value["type"], value, b"raw")])
    return calls


@pytest.mark.parametrize(
    ("value", "call"),
    [
        ({"type": "connected"}, ("connected",)),
        ({"type": "shell_output", "data": "x"}, ("shell_output", "x")),
        ({"type": "shell_output"}, ("shell_output", "")),
        ({"type": "shell_exit", "code": 3}, ("shell_exit", 3)),
        ({"type": "shell_exit"}, ("shell_exit", 0)),
        ({"type": "error", "error": "x"}, ("error", "x")),
        ({"type": "git_status", "git_status": {"a": None}}, ("git_status", {"a": None})),
        ({"type": "process_status", "process_status": None}, ("process_status", {})),
    ],
)
def test_each_type_of_frame_has_its_callback(value: dict, call: tuple):
    """B28: what the daemon leaves out or sends as null is zero or empty, never a crash."""
    assert dispatched(value) == [("frame", b"raw"), call]


def test_frames_of_other_types_are_only_frames():
    assert dispatched({"type": "zig"}) == [("frame", b"raw")]
    assert dispatched({"type": "frame"}) == [("frame", b"raw")]


def test_nobody_needs_to_listen():
    WorkspaceStreamCallbacks().dispatch([Frame("shell_output", {}, b"raw")])
