"""Names of tools: fit for the API, without collisions, and never parsed back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol import naming
from tieline_protocol.naming import Pair

API = re.compile(r"[a-zA-Z0-9_-]{1,64}")
SEEN_IN_THE_FIELD = [
    "calendar.respondToEvent",
    "get weather",
    "naïve",
    "",
    "a" * 65,
    "-x",
    "../etc/passwd",
    "😀",
    "ok_fn",
    "\ud83d",
]


def test_a_plain_name_stands_as_it_is():
    assert naming.tool_name(Pair("browser", "open_tab")) == "browser__open_tab"


def test_any_function_name_gets_a_name_that_the_api_takes_and_finds_its_way_back():
    """B09: names with a dot, a space, an accent, none at all, too long, half an emoji."""
    table = naming.names(Pair("cal", name) for name in SEEN_IN_THE_FIELD)

    assert all(API.fullmatch(name) for name in table)
    assert [pair.function for pair in table.values()] == SEEN_IN_THE_FIELD
    assert table["cal__ok_fn"] == ("cal", "ok_fn")


@pytest.mark.parametrize(
    "pairs",
    [
        [("a", "send_email"), ("b", "send_email")],
        [("a_b", "c"), ("a", "b_c")],
        [("a__b", "c"), ("a", "b__c")],
        [("a_", "b"), ("a", "_b")],
        [("r", "x.y"), ("r", "x_y")],
        [("r", "x" * 70), ("r", "x" * 71)],
    ],
)
def test_two_functions_never_share_a_name(pairs: list[tuple[str, str]]):
    """B11: the same function in two remotes, joined names that read alike, fitted ones that look alike."""
    table = naming.names(Pair(*pair) for pair in pairs)

    assert list(table.values()) == pairs


def test_a_function_that_is_named_like_a_tool_of_the_agents_own_gives_way():
    """B11: a remote function named as a built-in tool."""
    table = naming.names([Pair("a", "b")], taken=["a__b"])

    assert "a__b" not in table
    assert list(table.values()) == [("a", "b")]


def test_a_name_made_to_look_like_a_hash_takes_nobody_elses_place():
    hashed = naming.tool_name(Pair("r", "x.y"))
    forged = Pair("r", hashed.removeprefix("r__"))
    table = naming.names([forged, Pair("r", "x.y")])

    assert sorted(table.values()) == sorted([forged, Pair("r", "x.y")])


def test_a_function_registered_twice_has_one_name():
    """B11: the same function twice in one `remote-connect`."""
    assert len(naming.names([Pair("a", "b"), Pair("a", "b")])) == 1


def test_a_name_does_not_depend_on_which_other_functions_there_are():
    alone = naming.names([Pair("r", "x.y")])
    among = naming.names([Pair("r", "x_y"), Pair("r", "x-y"), Pair("r", "x.y")])

    assert alone.items() <= among.items()


names_of_anything = st.text(max_size=80) | st.sampled_from(["a", "a_", "_b", "__", "a__b", "b"])


@given(
    st.lists(st.builds(Pair, names_of_anything, names_of_anything), max_size=20), st.sets(st.text(max_size=8))
)
def test_names_are_fit_unique_and_map_back_whatever_they_are_made_of(pairs: list[Pair], taken: set[str]):
    table = naming.names(pairs, taken)

    assert all(API.fullmatch(name) and naming.is_fit(name) for name in table)
    assert not taken & set(table)
    assert list(table.values()) == list(dict.fromkeys(pairs))


def test_of_more_than_128_functions_every_remote_keeps_its_first():
    """B14: three remotes of fifty functions."""
    pairs = [Pair(f"r{remote}", f"f{number:02}") for remote in range(3) for number in range(50)]
    kept, dropped = naming.choose(pairs)

    assert len(kept) == 128
    assert [pair for pair in pairs if pair in set(kept)] == kept
    assert naming.listed(dropped)[:2] == ["r0/f43", "r0/f44"]
    assert naming.choose(pairs) == (kept, dropped)


def test_tools_of_the_agents_own_leave_less_room():
    kept, dropped = naming.choose([Pair("a", "1"), Pair("b", "2"), Pair("a", "3")], room=2)

    assert (kept, dropped) == ([("a", "1"), ("b", "2")], [("a", "3")])
    assert naming.choose(kept, room=-1) == ([], kept)


def test_a_name_that_the_model_made_up_becomes_fit_for_the_history():
    assert naming.fitted("browser.opne tab", "unknown") == "browser_opne_tab"
    assert naming.fitted("", "unknown") == "unknown"
    assert not naming.is_fit("a b")
    assert not naming.is_fit("a" * 65)
