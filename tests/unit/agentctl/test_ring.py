"""The newest output within a bound."""

from hypothesis import given
from hypothesis import strategies as st
from tieline_agentctl.ring import Ring, TailBuffer


def test_the_oldest_chunk_goes_first():
    ring: Ring[str] = Ring(4)
    for chunk in ("ab", "cd", "e"):
        ring.add(chunk, len(chunk))

    assert (list(ring), ring.size) == (["cd", "e"], 3)


def test_one_chunk_that_is_too_big_is_kept_alone():
    ring: Ring[str] = Ring(4)
    ring.add("a", 1)
    ring.add("bcdefgh", 7)

    assert list(ring) == ["bcdefgh"]


@given(st.lists(st.text()), st.integers(1, 20))
def test_a_tail_is_always_a_suffix_of_what_was_written(chunks, most):
    tail = TailBuffer(most)
    for chunk in chunks:
        tail.add(chunk)

    text = tail.text()

    assert "".join(chunks).endswith(text)
    assert len(text.encode()) <= most


def test_a_tail_never_begins_inside_a_character():
    tail = TailBuffer(5)
    tail.add("😀😀")

    assert tail.text() == "😀"


def test_a_short_text_is_all_there():
    tail = TailBuffer(100)
    tail.add("ab")
    tail.add("")

    assert tail.text() == "ab"
