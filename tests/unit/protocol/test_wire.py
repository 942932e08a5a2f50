"""What a broker sends, taken apart, however it was cut on the way."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol.errors import ProtocolError
from tieline_protocol.wire import Parser, headers

Heard = list[tuple[object, ...]]


def hear(*pieces: bytes) -> Heard:
    heard: Heard = []
    parser = Parser(lambda *message: heard.append(message), lambda *line: heard.append(line))
    for piece in pieces:
        parser.feed(piece)
    return heard


def test_a_message_is_handed_on_with_its_reply_subject_or_without() -> None:
    assert hear(b"MSG a.b 7 3\r\nabc\r\nMSG a.b 8 _INBOX.x 0\r\n\r\n") == [
        (7, "a.b", "", b"abc", b""),
        (8, "a.b", "_INBOX.x", b"", b""),
    ]


def test_headers_are_kept_apart_from_the_payload() -> None:
    assert hear(b"HMSG a 1 r 12 15\r\nNATS/1.0\r\n\r\nabc\r\nHMSG a 1 12 12\r\nNATS/1.0\r\n\r\n\r\n") == [
        (1, "a", "r", b"abc", b"NATS/1.0\r\n\r\n"),
        (1, "a", "", b"", b"NATS/1.0\r\n\r\n"),
    ]


def test_control_lines_are_handed_on_and_plain_consent_is_not() -> None:
    assert hear(b"PING\r\n+OK\r\nPONG\r\n-ERR 'Slow Consumer'\r\nINFO {\"a\": 1}\r\n") == [
        (b"PING", b""),
        (b"PONG", b""),
        (b"-ERR", b"'Slow Consumer'"),
        (b"INFO", b'{"a": 1}'),
    ]


@given(
    st.lists(st.binary(max_size=200), max_size=6),
    st.lists(st.integers(min_value=0, max_value=2_000), max_size=12),
)
def test_it_does_not_matter_where_the_network_cuts(payloads: list[bytes], cuts: list[int]) -> None:
    whole = b"PING\r\n".join(b"MSG s.%d %d %d\r\n%b\r\n" % (n, n, len(p), p) for n, p in enumerate(payloads))
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]

    pieces = [whole[begin:end] for begin, end in pairwise(places)]

    assert hear(*pieces) == hear(whole)
    assert [item[3] for item in hear(whole) if len(item) == 5] == payloads


@pytest.mark.parametrize(
    "bad",
    [
        b"HELLO\r\n",
        b"MSG a\r\n",
        b"MSG a b 3\r\nabc\r\n",
        b"MSG a 1 r x 3\r\nabc\r\n",
        b"HMSG a 1 9 3\r\nabc\r\n",
        b"x" * 70_000,
    ],
)
def test_what_no_broker_says_is_refused(bad: bytes) -> None:
    with pytest.raises(ProtocolError):
        hear(bad)


@pytest.mark.parametrize(
    ("block", "read"),
    [
        (b"NATS/1.0 503\r\n\r\n", {"Status": "503"}),
        (b"NATS/1.0 404 No Messages\r\n\r\n", {"Status": "404", "Description": "No Messages"}),
        (
            b"NATS/1.0 204 EOB\r\nNats-Last-Sequence: 7\r\n\r\n",
            {"Status": "204", "Description": "EOB", "Nats-Last-Sequence": "7"},
        ),
        (b"NATS/1.0\r\na: b:c\r\nnone\r\nd:\r\n\r\n", {"a": "b:c", "d": ""}),
        ("NATS/1.0\r\na: ü\r\n\r\n".encode(), {"a": "ü"}),
        (b"NATS/1.0\r\n\r\n", None),
    ],
)
def test_headers_and_status_lines_are_read(block: bytes, read: dict[str, str] | None) -> None:
    assert headers(block) == read
