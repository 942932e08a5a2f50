"""Answers put together from pieces, standard and odd."""

import json

from hypothesis import given
from hypothesis import strategies as st
from tieline_agent.assembly import Assembly, CallDelta, Joiner, Usage


def assembled(*pieces: CallDelta) -> list[tuple[str, str, str]]:
    assembly = Assembly()
    for piece in pieces:
        assembly.add(piece)
    return [(call.id, call.name, call.arguments) for call in assembly.calls]


def test_interleaved_calls_keep_their_own_pieces():
    """B56: two calls whose deltas alternate."""
    calls = assembled(
        CallDelta(0, "a", "f"),
        CallDelta(1, "b", "g"),
        CallDelta(0, None, None, '{"x":'),
        CallDelta(1, None, None, '{"y":'),
        CallDelta(0, None, None, "1}"),
        CallDelta(1, None, None, "2}"),
    )

    assert calls == [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')]


def test_null_before_the_arguments_is_nothing():
    """B54: (b) null, then the object in three deltas."""
    calls = assembled(
        CallDelta(0, "a", "f", None),
        CallDelta(0, None, None, '{"city"'),
        CallDelta(0, None, None, ":"),
        CallDelta(0, None, None, '"Paris"}'),
    )

    assert calls == [("a", "f", '{"city":"Paris"}')]


def test_an_index_used_again_by_another_id_is_another_call():
    calls = assembled(CallDelta(0, "a", "f", '{"x":1}'), CallDelta(0, "b", "f", '{"x":2}'))

    assert calls == [("a", "f", '{"x":1}'), ("b", "f", '{"x":2}')]


def test_an_index_used_again_without_ids_is_another_call_once_the_first_is_whole():
    calls = assembled(
        CallDelta(0, None, "f", '{"x":'),
        CallDelta(0, None, "f", "1}"),
        CallDelta(0, None, "g", '{"y":2}'),
    )

    assert calls == [("", "f", '{"x":1}'), ("", "g", '{"y":2}')]


def test_the_same_id_under_two_indexes_is_two_calls():
    assert len(assembled(CallDelta(0, "a", "f", "{}"), CallDelta(1, "a", "g", "{}"))) == 2


def test_without_any_index_the_id_or_the_order_decides():
    calls = assembled(
        CallDelta(None, "a", "f", '{"x":'),
        CallDelta(None, "b", "g", '{"y":'),
        CallDelta(None, "a", None, "1}"),
        CallDelta(None, None, None, ""),
        CallDelta(None, "b", None, "2}"),
        CallDelta(None, None, "h", "{}"),
    )

    assert calls == [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}'), ("", "h", "{}")]


def test_a_first_piece_that_says_nothing_still_begins_a_call():
    assert assembled(CallDelta(None, None, None, "{}")) == [("", "", "{}")]


def test_a_name_in_every_piece_is_one_name_and_a_name_in_parts_is_joined():
    repeated = assembled(CallDelta(0, "a", "f", '{"x":'), CallDelta(0, "a", "f", "1}"))
    parts = assembled(
        CallDelta(0, "a", "get_"), CallDelta(0, None, "weather"), CallDelta(0, None, None, "{}")
    )

    assert repeated == [("a", "f", '{"x":1}')]
    assert parts == [("a", "get_weather", "{}")]


def test_a_new_id_in_every_piece_does_not_part_a_call():
    assert assembled(CallDelta(0, "a", "f", '{"x":'), CallDelta(0, "b", None, "1}")) == [
        ("a", "f", '{"x":1}')
    ]


def test_even_empty_pieces_have_a_size():
    assembly = Assembly()
    for _ in range(100):
        assembly.add(CallDelta(0))

    assert assembly.size >= 100


def test_usage_adds_up_and_remembers_that_a_part_is_estimated():
    total = Usage(1, 2).plus(Usage(3, 4, estimated=True))

    assert total == Usage(4, 6, estimated=True)
    assert total.total == 10


def test_half_a_character_waits_for_its_other_half():
    joiner = Joiner()

    assert [joiner.add("a\ud83d"), joiner.add(""), joiner.add("\ude00b"), joiner.rest()] == [
        "a",
        "",
        "😀b",
        "",
    ]


def test_half_a_character_that_nothing_completes_is_replaced():
    """B20: the other parts: what the model says."""
    joiner = Joiner()

    assert joiner.add("a\udc97\ud83d") == "a\ufffd"
    assert joiner.rest() == "\ufffd"


@given(st.lists(st.dictionaries(st.text(max_size=3), st.integers()), min_size=1, max_size=5), st.data())
def test_whatever_the_cuts_and_the_order_every_call_is_whole(
    objects: list[dict[str, int]], data: st.DataObject
):
    texts = [json.dumps(each) for each in objects]
    left = dict(enumerate(texts))
    pieces = [CallDelta(index, f"id{index}", "f") for index in left]
    while left:
        index = data.draw(st.sampled_from(sorted(left)))
        cut = data.draw(st.integers(1, 12))
        pieces.append(CallDelta(index, None, None, left[index][:cut]))
        left[index] = left[index][cut:]
        if not left[index]:
            del left[index]

    assert [call[2] for call in assembled(*pieces)] == texts


@given(st.text(alphabet=st.characters()), st.lists(st.integers(0, 50)))
def test_text_in_pieces_of_utf16_is_the_text(text: str, cuts: list[int]):
    units = text.encode("utf-16-le", "surrogatepass")
    joiner, whole, at = Joiner(), "", 0
    for cut in (*sorted(cuts), len(units) // 2):
        piece = units[2 * at : 2 * cut].decode("utf-16-le", "surrogatepass") if cut > at else ""
        whole += joiner.add(piece)
        at = max(at, min(cut, len(units) // 2))

    assert whole + joiner.rest() == units.decode("utf-16-le", "replace")
