"""Text from bytes that come in pieces."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tieline_agentctl.decode import TextDecoder


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(places)]


@given(st.text(), st.lists(st.integers(0, 200)))
def test_wherever_a_text_is_cut_it_comes_out_whole(text, cuts):
    """B75: no cut breaks a character."""
    decoder = TextDecoder()

    out = "".join(decoder.feed(piece) for piece in pieces(text.encode(), cuts)) + decoder.finish()

    assert out == text


@given(st.binary(), st.lists(st.integers(0, 200)))
def test_bytes_that_are_no_text_never_fail_and_do_not_depend_on_the_cuts(data, cuts):
    decoder = TextDecoder()

    out = "".join(decoder.feed(piece) for piece in pieces(data, cuts)) + decoder.finish()

    assert out == data.decode(errors="replace")


def test_an_end_inside_a_character_is_one_mark_and_the_next_text_is_clean():
    """B75: at most one U+FFFD."""
    decoder = TextDecoder()

    assert decoder.feed(b"a\xf0\x9f\x98") == "a"
    assert decoder.finish() == "\ufffd"
    assert decoder.finish() == ""
    assert decoder.feed(b"\x80b") == "\ufffdb"


def test_one_byte_at_a_time():
    """B75: box drawing and an emoji."""
    decoder = TextDecoder()

    assert [decoder.feed(bytes([byte])) for byte in "─😀".encode()] == ["", "", "─", "", "", "", "😀"]
