"""Arguments of a remote's function on a command line."""

from typing import Any

import pytest
from tieline_ops.cli import arguments
from tieline_ops.cli.codes import Problem

SCHEMA = {
    "type": "object",
    "properties": {
        "url": {"type": "string"},
        "limit": {"type": "integer"},
        "deep": {"type": ["boolean", "null"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "list": {"anyOf": [{"type": "array"}, {"type": "null"}]},
        "any": {},
    },
    "required": ["url"],
}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("url=3", "3"),
        ("url=a=b", "a=b"),
        ("url=", ""),
        ("limit=3", 3),
        ("limit=many", "many"),
        ("deep=true", True),
        ("either=3", "3"),
        ("either:=3", 3),
        ("list=[1, 2]", [1, 2]),
        ("any=3", "3"),
        ("any:={\"a\": 1}", {"a": 1}),
        ("unknown=3", "3"),
    ],
)  # fmt: skip
def test_the_schema_says_what_a_word_means(word: str, value: Any) -> None:
    assert list(arguments.parsed([word], SCHEMA).values()) == [value]


@pytest.mark.parametrize("word", ["url", "=3", ":=3", "any:=nonsense"])
def test_what_is_no_argument_is_a_mistake(word: str) -> None:
    with pytest.raises(Problem):
        arguments.parsed([word], SCHEMA)


def test_a_remote_without_a_schema_gets_texts() -> None:
    assert arguments.parsed(["a=1"], {}) == {"a": "1"}


def test_how_a_function_is_called() -> None:
    usage = arguments.usage({"name": "open", "parameters": SCHEMA})

    assert usage.startswith("open url=string [limit=integer] [deep=boolean|null] [either=integer|string]")
    assert "[any=any]" in usage
