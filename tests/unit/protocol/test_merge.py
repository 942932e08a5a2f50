from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol.merge import key, merge, parse


def shell(data: str, **more: object) -> bytes:
    return json.dumps({"type": "shell_output", "timestamp": 5, "data": data, **more}).encode()


def test_neighbours_of_one_stream_share_a_key():
    out = {"type": "process_output", "process_output": {"process_id": "p", "stream": "stdout", "data": "x"}}

    assert key("shell_output", {"data": "x"}) == key("shell_output", {})
    assert key("process_output", out) == ("process_output", "p", "stdout")


def test_what_is_no_output_is_never_merged():
    assert key("git_status", {}) is None
    assert key("shell_output", {"data": 5}) is None
    assert key("process_output", {"process_output": None}) is None
    assert key("process_output", {"process_output": {"data": 5}}) is None


def test_one_event_stays_as_it_is():
    assert merge([b'{ "type": "shell_output" }']) == b'{ "type": "shell_output" }'


def test_the_text_is_joined_and_the_rest_is_of_the_first():
    merged = json.loads(
        merge([shell("a\n"), shell("  b"), shell("", timestamp=9), b'{"type":"shell_output"}'])
    )

    assert merged == {"type": "shell_output", "timestamp": 5, "data": "a\n  b"}


def test_process_output_is_joined():
    def one(data: str) -> bytes:
        output = {"process_id": "p", "stream": "stderr", "data": data}
        return json.dumps({"type": "process_output", "process_output": output}).encode()

    merged = json.loads(merge([one("x"), one("y")]))

    assert merged["process_output"] == {"process_id": "p", "stream": "stderr", "data": "xy"}


def test_two_halves_of_a_character_become_one():
    """B75: half a surrogate pair in one frame and the other half in the next are joined."""
    merged = merge(
        [rb'{"type":"shell_output","data":"a\ud83d"}', rb'{"type":"shell_output","data":"\ude00b"}']
    )

    assert json.loads(merged)["data"] == "a😀b"


def test_a_half_that_stays_alone_stays_escaped():
    """B20: a lone surrogate never becomes bytes that cannot be decoded."""
    merged = merge([rb'{"type":"shell_output","data":"\udc97"}', shell("b")])

    assert merged.isascii()
    assert rb"\udc97" in merged


def test_deep_nesting_beside_the_text_does_no_harm():
    """B22: an event as deep as events may be."""
    deep = b'{"type":"shell_output","data":"\\u0041","x":%b%b}' % (b"[" * 1_020, b"]" * 1_020)

    assert json.loads(merge([deep, shell("b")])) == {"type": "shell_output", "data": "Ab"}


def test_plain_text_is_parsed_fast_and_escaped_text_exactly():
    assert parse(b'{"a":1}') == {"a": 1}
    assert parse(rb'{"a":"\ud83d"}') == {"a": "\ud83d"}


@given(st.lists(st.text(), min_size=2))
def test_merging_loses_nothing(pieces: list[str]):
    assert json.loads(merge([shell(piece) for piece in pieces]))["data"] == "".join(pieces)
