from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol import batch, subjects
from tieline_protocol.numbering import BATCH_BYTES, MAX_TYPES, Numbering, Outgoing, admit, gap

EPOCH = 70


def numbering(log: str = "agent") -> Numbering:
    return Numbering("ada", "s1", log, EPOCH)


def decoded(outgoing: list[Outgoing]) -> list[tuple[int, dict]]:
    return [
        (record.cursor.offset, record.event)
        for one in outgoing
        for record in batch.events(batch.decode(one.data))
    ]


def test_an_epoch_begins_with_its_opening():
    log = numbering()

    opening = log.opening(previous=12, last=34, clean=False, now_ms=5)

    assert (opening.first, opening.last) == (1, 1)
    assert opening.subject == subjects.event("ada", "s1", "agent", "epoch")
    assert decoded([opening]) == [(1, {"type": "epoch", "previous": 12, "last": 34, "clean": False})]


def test_text_gathers_until_the_turn_of_the_loop_ends():
    log = numbering()

    assert log.received("message_chunk", [b'{"type":"message_chunk","text":"a"}'], 1) == []
    assert log.received("message_chunk", [b'{"type":"message_chunk","text":"b"}'], 1) == []
    assert log.gathered > 0
    (made,) = log.flush()

    assert (made.first, made.last) == (1, 2)
    assert [event["text"] for _, event in decoded([made])] == ["a", "b"]
    assert log.flush() == []
    assert log.gathered == 0


def test_anything_else_flushes_what_is_before_it_and_goes_at_once():
    log = numbering()
    log.received("message_chunk", [b'{"type":"message_chunk"}'], 1)

    text, tool = log.received("tool_call", [b'{"type":"tool_call"}'], 1)

    assert text.subject.endswith(".message_chunk")
    assert tool.subject.endswith(".tool_call")
    assert (text.last, tool.first) == (1, 2)


def test_text_of_another_type_begins_another_batch():
    log = numbering()
    log.received("message_chunk", [b'{"type":"message_chunk"}'], 1)

    (text,) = log.received("reasoning", [b'{"type":"reasoning"}'], 1)

    assert text.subject.endswith(".message_chunk")
    assert log.flush()[0].subject.endswith(".reasoning")


def test_a_batch_of_text_ends_at_its_size():
    log = numbering("workspace")
    raw = orjson.dumps({"type": "shell_output", "data": "x" * (BATCH_BYTES // 2)})

    assert log.received("shell_output", [raw], 1) == []
    (made,) = log.received("shell_output", [raw], 1)

    assert (made.first, made.last) == (1, 2)


def test_cursors_carry_the_newest_confirmed_sequence():
    log = numbering()
    log.at = 99

    (made,) = log.received("plan", [b'{"type":"plan"}'], 1)

    assert batch.decode(made.data).at == 99
    assert next(batch.events(batch.decode(made.data))).cursor.at == 99


def test_a_peer_cannot_make_more_than_64_subjects_of_its_own():
    log = numbering()

    made = [log.received(f"t{n}", [b'{"type":"x"}'], 1)[0].subject for n in range(MAX_TYPES + 2)]
    again = log.received("t0", [b'{"type":"x"}'], 1)[0].subject
    known = log.received("turn", [b'{"type":"turn"}'], 1)[0].subject

    assert len(set(made)) == MAX_TYPES + 1
    assert made[-1] == made[-2] == subjects.event("ada", "s1", "agent", "other")
    assert again == made[0]
    assert known.endswith(".turn")


def test_a_type_that_cannot_be_a_token_goes_under_other():
    """B29: an event type from a peer never becomes a wildcard or a second token."""
    for type in ("a.b", "*", ">", "a b", "ünï", "x" * 65):
        (made,) = numbering().received(type, [b'{"type":"?"}'], 1)
        assert made.subject == subjects.event("ada", "s1", "agent", "other")


def test_an_event_of_a_reserved_type_is_wrapped():
    assert admit("turn", b'{"type":"turn"}', 100) == (
        "foreign",
        b'{"type":"foreign","event":{"type":"turn"}}',
    )
    assert admit("plan", b'{"type":"plan"}', 100) == ("plan", b'{"type":"plan"}')


def test_an_event_that_is_too_large_becomes_a_gap():
    type, raw = admit("git_status", b"x" * 101, 100)

    assert type == "gap"
    assert orjson.loads(raw) == {
        "type": "gap",
        "reason": "too_large",
        "event_type": "git_status",
        "events": 1,
        "bytes": 101,
    }


def test_a_gap_says_only_what_is_known():
    assert orjson.loads(gap("invalid")) == {"type": "gap", "reason": "invalid"}


@given(
    st.lists(
        st.tuples(st.sampled_from(["message_chunk", "reasoning", "plan", "zig.zag", "turn"]), st.booleans())
    )
)
def test_offsets_have_no_holes_whatever_comes_when(steps: list[tuple[str, bool]]):
    log = numbering()
    out = [log.opening(0, 0, True, 1)]
    for n, (type, flush) in enumerate(steps):
        out += log.received(type, [orjson.dumps({"type": type, "n": n})], 1)
        if flush:
            out += log.flush()
    out += log.flush()

    seen = decoded(out)
    assert [offset for offset, _ in seen] == list(range(1, len(steps) + 2))
    assert [event["n"] for _, event in seen[1:]] == list(range(len(steps)))
    assert log.last == len(steps) + 1


def test_pieces_of_a_chats_answer_travel_together_and_what_follows_them_goes_at_once():
    numbering = Numbering("ada", "t1", "thread", 7)
    for _ in range(3):
        assert numbering.received("delta", [b'{"type":"delta"}'], 0) == []
    pieces, message = numbering.received("message", [b'{"type":"message"}'], 0)

    assert (pieces.first, pieces.last, message.first) == (1, 3, 4)
    assert pieces.subject.endswith(".t1.thread.delta")
    assert b'"thread_id":"t1"' in message.data


@given(st.lists(st.lists(st.binary(min_size=1, max_size=9_000), max_size=12), max_size=6))
def test_events_that_came_together_are_numbered_as_if_each_had_come_alone(turns: list[list[bytes]]) -> None:
    together, alone = numbering("workspace"), numbering("workspace")

    made = [batch for raws in turns for batch in together.received("shell_output", raws, 1)]
    single = [batch for raws in turns for raw in raws for batch in alone.received("shell_output", [raw], 1)]

    assert made == single
    assert together.flush() == alone.flush()
