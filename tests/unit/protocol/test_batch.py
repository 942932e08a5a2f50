"""Batches: what a viewer's socket gets, to the byte."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol import batch as batches
from tieline_protocol.batch import Batch, Framer
from tieline_protocol.cursor import Cursor, Position
from tieline_protocol.errors import BadMessage
from websockets.frames import Opcode
from websockets.protocol import CLIENT, Protocol, State

FRAMER = Framer("s1", "agent")


def made(events, epoch=7, first=3, at=2):
    frames = [FRAMER.frame(Cursor(epoch, first + n, at), 1, event) for n, event in enumerate(events)]
    return Batch(epoch, first, len(frames), at, b"".join(frames))


EVENTS = st.lists(
    st.dictionaries(st.text(max_size=5), st.text(max_size=200), max_size=3).map(
        lambda e: json.dumps(e).encode()
    ),
    min_size=1,
    max_size=6,
)


@given(EVENTS, st.integers(1, 2**63), st.integers(1, 2**62), st.integers(0, 2**63))
def test_a_batch_survives_the_broker(events, epoch, first, at):
    batch = made(events, epoch, first, at)
    back = batches.decode(batches.encode(batch))

    assert (back.start, back.end) == (Position(epoch, first), Position(epoch, first + len(events) - 1))
    assert (back.count, back.at, bytes(back.frames)) == (batch.count, at, batch.frames)


@given(EVENTS)
def test_events_come_back_as_they_went_in(events):
    records = list(batches.events(batches.decode(batches.encode(made(events)))))

    assert [record.event for record in records] == [json.loads(event) for event in events]
    assert [record.cursor for record in records] == [Cursor(7, 3 + n, 2) for n in range(len(events))]
    assert {record.time for record in records} == {1}


@given(EVENTS, st.data())
def test_a_part_of_a_batch_is_the_batch_of_that_part(events, data):
    batch = made(events)
    cut = data.draw(st.integers(0, len(events)))

    if cut < len(events):
        after = batch.after(2 + cut)
        rest = made(events[cut:], first=3 + cut)
        assert batches.encode(after) == batches.encode(rest)
    if cut > 0:
        until = batch.until(2 + cut)
        assert batches.encode(until) == batches.encode(made(events[:cut]))
    assert batch.after(0) is batch
    assert batch.until(99) is batch


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda b: batches.encode(made([b"1"]))[:33] + b))
def test_any_bytes_give_a_batch_or_bad_message(raw):
    try:
        batch = batches.decode(raw)
        list(batches.events(batch))
        batch.after(batch.first)
    except BadMessage:
        pass


@given(st.integers(0, 32), st.binary(min_size=1, max_size=1))
def test_a_damaged_prefix_gives_a_batch_or_bad_message(where, byte):
    raw = bytearray(batches.encode(made([b"{}", b"[1,2]"])))
    raw[where : where + 1] = byte
    try:
        batch = batches.decode(bytes(raw))
        list(batches.texts(batch))
    except BadMessage:
        pass


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x02" + batches.encode(made([b"1"]))[1:],
        batches.encode(made([b"1"])) + b"x",
        batches.encode(Batch(1, 0, 1, 0, b"")),
        batches.encode(Batch(1, 1, 0, 0, b"")),
    ],
)
def test_a_prefix_that_disagrees_with_its_message_is_refused(raw):
    with pytest.raises(BadMessage):
        batches.decode(raw)


@pytest.mark.parametrize(
    "frames",
    [b"", b"\x81", b"\x81\x05abc", b"\x81\x7e\x00", b"\x81\x7f\x00\x00", b"\x82\x00", b"\x81\x00\x81\x00"],
)
def test_frames_that_disagree_with_the_count_are_refused(frames):
    with pytest.raises(BadMessage):
        list(batches.texts(Batch(1, 1, 1, 0, frames)))


@pytest.mark.parametrize(
    "event", [b"{}", b'{"payload":{}}', b'{"payload":3}', b'{"payload":{"cursor":"x"}}', b"3", b"nope"]
)
def test_a_frame_that_is_no_event_is_refused(event):
    with pytest.raises(BadMessage):
        list(batches.events(Batch(1, 1, 1, 0, batches.frame(event))))


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 1_048_576])
def test_a_stock_client_reads_frames_of_every_size(size):
    client = Protocol(CLIENT, state=State.OPEN, max_size=None)
    texts = [b"a" * size, "é".encode() * 3]

    client.receive_data(b"".join(map(batches.frame, texts)))

    received = client.events_received()
    assert [bytes(frame.data) for frame in received] == texts
    assert all(frame.fin and frame.opcode is Opcode.TEXT for frame in received)


@given(st.sampled_from(["agent", "workspace", "thread"]), EVENTS)
def test_a_viewer_gets_the_frontend_protocols_notification(log, events):
    framer = Framer("s1", log)
    client = Protocol(CLIENT, state=State.OPEN)
    for event in events:
        client.receive_data(framer.frame(Cursor(7, 3, 2), 99, event))

    for frame, event in zip(client.events_received(), events, strict=True):
        told = json.loads(bytes(frame.data))
        named = {"thread_id": "s1"} if log == "thread" else {"session_id": "s1", "log": log}
        action = "thread.event" if log == "thread" else "session.event"
        assert told == {
            "type": "notification",
            "action": action,
            "payload": {**named, "cursor": "7.3.2", "time": 99, "event": json.loads(event)},
        }


def test_an_event_passes_to_the_byte():
    """B20: an escaped half of an emoji and odd spacing are the viewer's business."""
    event = b'{ "type":"message_chunk", "text": "\\ud83d \\u0000" }'

    assert event in FRAMER.frame(Cursor(1, 1, 0), 0, event)


def test_a_gap_is_told_in_a_frame_like_any_other():
    frame = FRAMER.gap(Cursor(7, 9, 2), 5, {"type": "gap", "reason": "retention", "events": 4})

    [record] = batches.events(Batch(7, 9, 1, 2, frame))
    assert record.event == {"type": "gap", "reason": "retention", "events": 4}
