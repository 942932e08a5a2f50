"""The frames of the workspace stream."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_agentctl import workspace_frames as frames
from tieline_agentctl.workspace_frames import Ignored, Ping, ShellInput, ShellResize, parse


def test_what_clients_send_is_read():
    assert parse('{"type":"shell_input","timestamp":1933135635001,"data":"ls\\r"}') == ShellInput("ls\r")
    assert parse('{"type":"shell_resize","timestamp":0,"cols":120,"rows":40}') == ShellResize(120, 40)
    assert parse('{"type":"ping"}') == Ping()


@pytest.mark.parametrize(
    "size",
    [
        {"cols": 0, "rows": 0},
        {"cols": -1, "rows": 24},
        {"cols": 80, "rows": 0},
        {"cols": 65536, "rows": 1},
        {"cols": 10**9, "rows": 10**9},
        {"cols": 10**30, "rows": 1},
        {"cols": "80", "rows": "24"},
        {"cols": 80.5, "rows": 24},
        {"cols": 80.0, "rows": 24},
        {"cols": None, "rows": None},
        {"cols": True, "rows": True},
        {"cols": 80},
        {},
    ],
)
def test_a_size_that_no_terminal_has_is_ignored(size):
    """B77."""
    assert isinstance(parse(json.dumps({"type": "shell_resize", **size})), Ignored)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "null", '{"type":"shell_input"}', '{"type":"shell_input","data":3}', "{}", b"\xff"],
)
def test_nonsense_is_ignored(text):
    assert isinstance(parse(text), Ignored)


@given(st.text() | st.binary())
def test_no_bytes_at_all_raise(text):
    parse(text)


def test_code_zero_is_left_out_and_any_other_is_told():
    """B28: as the wire has it."""
    assert json.loads(frames.shell_exit(0, 5)) == {"type": "shell_exit", "timestamp": 5}
    assert json.loads(frames.shell_exit(-1, 5)) == {"type": "shell_exit", "timestamp": 5, "code": -1}


def test_what_was_dropped_is_told_in_bytes():
    assert json.loads(frames.dropped(7, 5))["error"].startswith("7 bytes")


@given(st.text())
def test_whatever_a_shell_writes_is_told_to_the_letter(data):
    assert json.loads(frames.frame("shell_output", 5, data=data)) == {
        "type": "shell_output",
        "timestamp": 5,
        "data": data,
    }
