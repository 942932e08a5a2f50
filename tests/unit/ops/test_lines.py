"""Events as lines."""

import json
import re
from typing import Any

import pytest
from tieline_ops.cli import lines, shapes
from tieline_ops.cli.lines import As
from tieline_protocol.errors import BadMessage


def frame(event: dict[str, Any], **payload: Any) -> bytes:
    told = {
        "session_id": "s123456789abc",
        "log": "agent",
        "cursor": "7.2.1",
        "time": 1_700_000_000_123,
        "event": event,
    }
    return json.dumps(
        {"type": "notification", "action": "session.event", "payload": {**told, **payload}}
    ).encode()


TURN = lines.told("u_ann", frame({"type": "turn", "generation": 1, "state": "running"}))


def test_a_line_says_when_whose_and_what() -> None:
    line = lines.line(TURN)

    assert re.match(r"\d\d:\d\d:\d\d\.123 s1234567… agent     turn +1 running$", line)


def test_a_wide_line_says_all_of_it() -> None:
    assert re.search(r"s123456789abc agent     u_ann +7\.2\.1 +turn", lines.line(TURN, wide=True))


def test_colours_change_nothing_but_the_colours() -> None:
    coloured = lines.line(TURN, colour=True)

    assert coloured != lines.line(TURN)
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == lines.line(TURN)


@pytest.mark.parametrize("width", [10, 40, 71, 72, 120])
@pytest.mark.parametrize("letter", ["x", "語"])
def test_a_line_fits_the_terminal(width: int, letter: str) -> None:
    event = lines.told("u_ann", frame({"type": "message_chunk", "text": letter * 500}))

    assert width // 2 < shapes.cells_wide(lines.line(event, width=width)) <= width


def test_on_a_narrow_terminal_there_is_room_for_what_happened() -> None:
    assert re.fullmatch(r"\d\d:\d\d:\d\d s123… agent turn +…", lines.line(TURN, width=40))


def test_what_a_peer_wrote_is_shown_and_not_obeyed() -> None:
    event = {"type": "message_chunk\x1b[2J", "text": "\x1b]0;title\x07\x9b31m\r\n"}
    for log in ("agent", "\x1bc"):
        one = lines.told("\x1b[1m", frame(event, session_id="\x1b[7m", log=log, cursor="\x1b"))
        for how in As:
            text = lines.writer(how, terminal=True)(one)
            assert text.replace("\n", "").isprintable(), how


def test_raw_is_what_came_to_the_byte_where_no_terminal_reads_it() -> None:
    text = frame({"type": "x", "text": "\x9b"}).decode()

    assert lines.writer(As.RAW)(lines.told("u", text.encode())) == text


@pytest.mark.parametrize("how", [As.JSON, As.NDJSON])
def test_json_for_programs(how: As) -> None:
    told = json.loads(lines.writer(how)(TURN))

    assert told["event"] == {"type": "turn", "generation": 1, "state": "running"}
    assert (told["session"], told["log"], told["cursor"], told["user"]) == (
        "s123456789abc",
        "agent",
        "7.2.1",
        "u_ann",
    )


def test_an_event_of_a_thread_names_its_thread() -> None:
    text = b'{"payload":{"thread_id":"t1","cursor":"1.1.0","time":"soon","event":{"type":"run"}}}'
    one = lines.told("u", text)

    assert lines.plain(one)["thread"] == "t1"
    assert (one.log, one.time, one.type) == ("thread", 0, "run")


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"payload":3}', b'{"payload":{"event":[]}}'])
def test_what_is_no_event_is_told_so(text: bytes) -> None:
    with pytest.raises(BadMessage):
        lines.told("u", text)


def test_a_time_that_cannot_be_shown_is_left_out() -> None:
    assert lines.clock(10**20) == "--:--:--.---"


def test_a_flaw_names_its_subject() -> None:
    assert lines.flaw("a.b\x1b", "not a batch", 12_345) == "! a.b\\e: not a batch (12,345 bytes)"
