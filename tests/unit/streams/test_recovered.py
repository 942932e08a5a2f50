"""What the logs of a session say about it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol import jsontext
from tieline_protocol.batch import Batch, Framer
from tieline_protocol.cursor import Cursor
from tieline_streams.recovered import events, fold


def stored(seq: int, epoch: int, first: int, *said: dict[str, Any]) -> tuple[int, Batch]:
    framer = Framer("s", "agent")
    frames = [
        framer.frame(Cursor(epoch, first + n, 0), 0, jsontext.dumps(event)) for n, event in enumerate(said)
    ]
    return seq, Batch(epoch, first, len(said), 0, b"".join(frames))


def opening(seq: int, epoch: int) -> tuple[int, Batch]:
    return stored(seq, epoch, 1, {"type": "epoch"})


def turn(generation: int, state: str) -> dict[str, Any]:
    return {"type": "turn", "generation": generation, "state": state}


def test_what_a_dead_owner_stored_after_the_next_opening_does_not_belong() -> None:
    found = fold(
        [
            opening(1, 7),
            stored(2, 7, 2, turn(1, "accepted")),
            opening(3, 9),
            stored(4, 7, 3, turn(1, "ended")),
        ],
        [],
    )

    assert found.turns == [turn(1, "accepted")]


def test_the_last_value_of_a_set_counts() -> None:
    agent = [
        opening(1, 7),
        stored(2, 7, 2, {"type": "permissions", "open": [{"pending_id": "a"}]}),
        stored(3, 7, 3, {"type": "permissions", "open": [{"pending_id": "b"}]}),
    ]

    assert fold(agent, []).permissions == [{"pending_id": "b"}]
    assert fold(agent, []).questions == []


def test_operations_without_an_end_are_open() -> None:
    running = {"type": "operation", "operation_id": "o1", "action": "git.push", "state": "running"}
    other = {**running, "operation_id": "o2"}
    workspace = [
        opening(1, 7),
        stored(2, 7, 2, running),
        stored(3, 7, 3, other),
        stored(4, 7, 4, {**running, "state": "done"}),
    ]

    assert fold([], workspace).operations == [other]


@given(st.data())
def test_batches_stored_twice_or_in_another_order_are_read_once_in_order(data: st.DataObject) -> None:
    batches = [(n, {"type": "turn", "n": n}) for n in range(2, 8)]
    order = data.draw(st.permutations(batches + batches[:3]))
    log = [opening(1, 7), *(stored(seq, 7, n, event) for seq, (n, event) in enumerate(order, 2))]

    assert [event["n"] for event in events(log) if "n" in event] == [2, 3, 4, 5, 6, 7]
