"""Texts of peers, as a terminal may be given them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_ops.cli import safe

STEERING = [
    "\x1b[2J",
    "\x1b]52;c;aGk=\x07",
    "\x9b31m",
    "\r",
    "\x07",
    "\b",
    "\u202e",
    "\u2028",
    "\ufeff",
    "\x7f",
    "\udc80",
]


@pytest.mark.parametrize("text", STEERING, ids=ascii)
def test_what_steers_a_terminal_is_shown_and_not_obeyed(text: str) -> None:
    shown = safe.line(f"a{text}b")

    assert shown.startswith("a")
    assert shown.endswith("b")
    assert shown.isprintable()


def test_people_can_read_it() -> None:
    assert safe.line("é 日本 👋\x1b[31m\n\tend") == "é 日本 👋\\e[31m\\n\\tend"


def test_a_block_keeps_its_lines_and_tabs_and_nothing_else() -> None:
    assert safe.block("one\r\n\ttwo\rthree\x1b[2J") == "one\n\ttwo\\rthree\\e[2J"


def test_a_long_text_is_cut() -> None:
    assert safe.cut("0123456789", 5) == "0123…"
    assert safe.cut("01234", 5) == "01234"


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON, st.sampled_from([None, 2]))
def test_json_is_the_same_value_when_it_is_read_and_steers_nothing(value: Any, indent: int | None) -> None:
    text = safe.jsoned(value, indent)

    assert json.loads(text) == value
    assert not safe._STEERING.search(text.replace("\n", "") if indent else text)
