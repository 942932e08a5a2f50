"""JSON that always parses, whatever a file is called."""

import json

from hypothesis import given
from hypothesis import strategies as st
from tieline_agentctl.jsons import dump

ANY_TEXT = st.text(st.characters())
SURROGATES = st.text(st.characters(min_codepoint=0xD7F0, max_codepoint=0xE00F))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | ANY_TEXT | SURROGATES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT | SURROGATES, inner, max_size=3),
    max_leaves=8,
)


def test_a_name_that_is_no_text_becomes_a_mark():
    """B20: half a character in a name never breaks the whole answer."""
    name = b"caf\xe9.txt".decode("utf-8", "surrogateescape")

    assert json.loads(dump({"path": name, "all": [name], "two": (1, None)})) == {
        "path": "caf\ufffd.txt",
        "all": ["caf\ufffd.txt"],
        "two": [1, None],
    }


@given(VALUES)
def test_every_value_parses(value):
    json.loads(dump(value).decode())
