from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tieline_streams.tail import Tail


def raw(data: object) -> bytes:
    return json.dumps({"type": "shell_output", "data": data}).encode()


def test_it_holds_what_was_published():
    tail = Tail()
    for piece in ("a", "", "\n  b"):
        tail.numbered([raw(piece)])
    tail.numbered([b'{"type":"shell_output"}'])
    tail.numbered([raw(5)])

    assert tail.text() == "a\n  b"


def test_halves_of_a_character_in_two_events_are_joined():
    """B75."""
    tail = Tail()
    tail.numbered([rb'{"data":"\ud83d"}'])
    tail.numbered([rb'{"data":"\ude00\ud83d"}'])

    assert tail.text() == "😀�"


def test_it_forgets_what_nobody_can_need():
    tail = Tail(size=100)
    for n in range(1_000):
        tail.numbered([raw(f"{n:04}")])

    assert len(tail.text()) == 100
    assert tail.text().endswith("09980999")
    assert len(tail._raws) < 60
    tail.numbered([raw("x" * 300)])
    assert tail.text() == "x" * 100


@given(st.lists(st.text()), st.integers(1, 50))
def test_it_is_always_a_suffix_and_never_half_a_character(pieces: list[str], size: int):
    tail = Tail(size)
    for piece in pieces:
        tail.numbered([raw(piece)])
    whole, kept = "".join(pieces), tail.text()

    assert whole.endswith(kept)
    assert len(kept.encode()) <= size
    assert len(kept.encode()) >= size - 3 or kept == whole
