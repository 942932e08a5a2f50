"""A log's state in few events."""

from __future__ import annotations

import orjson
import pytest
from tieline_gateway.snapshot import frames, outlived
from tieline_protocol import batch as batches
from tieline_protocol.batch import Batch, Framer
from tieline_protocol.cursor import Cursor
from tieline_protocol.errors import BadMessage
from tieline_protocol.joining import Opening

FRAMER = Framer("s1", "workspace")
HERE = Cursor(9, 40, 100)


def value(first: int, *names: str) -> Batch:
    made = [
        FRAMER.frame(Cursor(9, first + n, 0), 0, orjson.dumps({"type": "git_status", "branch": name}))
        for n, name in enumerate(names)
    ]
    return Batch(9, first, len(made), 0, b"".join(made))


def payloads(made: list[bytes]) -> list[dict[str, object]]:
    return [orjson.loads(text)["payload"] for one in made for text in batches.texts(Batch(1, 1, 1, 0, one))]


def test_each_value_is_its_last_event_oldest_first_and_the_last_carries_the_cursor() -> None:
    told = payloads(frames([(30, value(7, "c")), (20, value(3, "a", "b"))], HERE))

    assert [p["event"] for p in told] == [
        {"type": "git_status", "branch": "b"},
        {"type": "git_status", "branch": "c"},
    ]
    assert [p["cursor"] for p in told] == ["9.4.0", "9.40.100"]


def test_of_nothing_there_is_nothing() -> None:
    assert frames([], HERE) == []


@pytest.mark.parametrize("text", [b"{}", b'{"cursor":"9.1.0'])
def test_a_frame_without_a_cursor_is_refused(text: bytes) -> None:
    with pytest.raises(BadMessage):
        frames([(1, Batch(9, 1, 1, 0, batches.frame(text)))], HERE)


def test_a_value_that_stands_after_a_higher_opening_does_not_count() -> None:
    openings = [Opening(10, 5), Opening(20, 9)]

    assert outlived(5, 25, openings)
    assert not outlived(5, 15, openings)
    assert not outlived(9, 25, openings)
    assert not outlived(5, 25, [])
