import json

from hypothesis import given
from hypothesis import strategies as st
from tieline_ops.last_words import MOST, readable


def test_errors_of_a_json_log_are_read_as_sentences() -> None:
    lines = [
        json.dumps({"event": "ready", "level": "info", "timestamp": "2026"}),
        json.dumps(
            {"event": "cannot listen", "level": "error", "timestamp": "2026", "service": "gateway", "port": 1}
        ),
    ]

    assert readable(lines) == ["cannot listen (port=1)"]


def test_of_an_exception_stays_what_was_raised() -> None:
    structured = [{"exc_type": "OSError", "exc_value": "no space", "frames": [{"lineno": 1}]}]
    text = "Traceback (most recent call last):\n  File x\nOSError: no room"

    assert readable([json.dumps({"event": "ended", "level": "error", "exception": structured})]) == [
        "ended: OSError: no space"
    ]
    assert readable([json.dumps({"event": "ended", "level": "error", "exception": text})]) == [
        "ended: OSError: no room"
    ]


def test_errors_of_the_broker_are_read_and_its_greetings_are_not() -> None:
    lines = [
        "[7] 2026/01/01 00:00:00.000000 [INF] Starting nats-server",
        "[7] 2026/01/01 00:00:00.000000 [FTL] Error listening on port: 127.0.0.1:1",
    ]

    assert readable(lines) == ["Error listening on port: 127.0.0.1:1"]


def test_a_traceback_loses_its_frames() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "x", line 1',
        "    raise",
        "ModuleNotFoundError: no x",
    ]

    assert readable(lines) == ["ModuleNotFoundError: no x"]


def test_what_is_no_log_line_is_shown_when_there_is_nothing_better() -> None:
    assert readable(["Usage: python -m x", "", "Error: no such option"]) == [
        "Usage: python -m x",
        "Error: no such option",
    ]
    assert readable([json.dumps({"event": "ready", "level": "info"})]) == []
    assert readable(["[1, 2]"]) == ["[1, 2]"]


def test_a_line_that_comes_again_and_again_is_shown_once() -> None:
    assert readable(["x"] * 100) == ["x"]


@given(st.lists(st.text() | st.builds(json.dumps, st.dictionaries(st.text(), st.integers()))))
def test_whatever_was_written_is_a_few_short_printable_lines(lines: list[str]) -> None:
    said = readable(lines)

    assert len(said) <= MOST
    assert all(len(line) <= 300 and line.isprintable() for line in said)
