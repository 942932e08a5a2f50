"""What an attached terminal must not be given."""

import pytest
from tieline_ops.cli import screen


@pytest.mark.parametrize(
    "question",
    [
        *("\x1b[6n", "\x1b[c", "\x1b[>c", "\x1b[0c", "\x1b[>0q", "\x1bZ", "\x05"),
        *("\x1bP$qm\x1b\\", "\x1bP+q544e\x1b\\", "\x1b]11;?\x07", "\x1b]10;?\x1b\\"),
    ],
    ids=ascii,
)
def test_the_past_asks_the_terminal_nothing(question: str) -> None:
    """Its answer would be typed into the shell, now."""
    assert screen.again(f"a{question}b") == "ab"


def test_the_rest_of_the_past_is_shown_as_it_was() -> None:
    text = "\x1b[31mred\x1b[0m\x1b[2J\x1b]0;title\x07\x1b[?1049h\r\n"

    assert screen.again(text) == text


@pytest.mark.parametrize(("named", "key"), [("^]", "\x1d"), ("^a", "\x01"), ("^A", "\x01"), ("^@", "\0")])
def test_keys(named: str, key: str) -> None:
    assert screen.key(named) == key


@pytest.mark.parametrize("named", ["", "a", "^", "^1", "^ab"])
def test_what_is_no_key(named: str) -> None:
    with pytest.raises(ValueError, match="no key"):
        screen.key(named)
