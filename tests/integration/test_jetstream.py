"""JetStream and its buckets on a real NATS: what is declared, stored, read and refused."""

import asyncio
import os

import pytest
from tieline_protocol import jetstream, streams, subjects
from tieline_protocol.bus import BusSettings, connect
from tieline_protocol.errors import Unavailable
from tieline_protocol.jetstream import Bucket, StreamRefused, WrongRevision
from tieline_protocol.streams import StreamLimits

EVENTS = subjects.log_events("ada", "s1", "agent")
STREAM = subjects.STREAM_AGENT


def subject(type="plan", session="s1", log="agent"):
    return subjects.event("ada", session, log, type)


async def put(bus, *types, **where):
    return [await jetstream.publish(bus, subject(type, **where), type.encode()) for type in types]


async def config(bus, stream):
    return (await jetstream.api(bus, subjects.stream_api("INFO", stream)))["config"]


async def test_declaring_everything_twice_changes_nothing(bus):
    names = [STREAM, subjects.STREAM_WORKSPACE, subjects.bucket_stream(subjects.BUCKET_OWNERS)]
    await put(bus, "plan")
    before = [await config(bus, name) for name in names]
    await streams.ensure(bus, StreamLimits())

    assert [await config(bus, name) for name in names] == before
    assert len((await jetstream.read(bus, STREAM, EVENTS, 1)).messages) == 1


async def test_a_compatible_change_is_made(bus):
    await streams.ensure(bus, StreamLimits(agent_days=5, workspace_per_subject=100))

    assert (await config(bus, STREAM))["max_age"] == 5 * 24 * 3600 * 10**9
    assert (await config(bus, subjects.STREAM_WORKSPACE))["max_msgs_per_subject"] == 100


async def test_an_incompatible_stream_is_refused_with_its_name_and_reason(bus):
    with pytest.raises(StreamRefused, match=r"stream TIELINE_AGENT: .*storage"):
        await streams.ensure(bus, StreamLimits(storage="memory"))


async def test_where_somebody_else_has_the_subjects_it_is_refused(nats_server):
    async with connect(BusSettings(nats_server.url, "test")) as bus:
        other = {"name": "OTHER", "subjects": ["tieline.event.>"], "storage": "memory"}
        await jetstream.ensure_stream(bus, other)
        with pytest.raises(StreamRefused, match="overlap"):
            await streams.ensure(bus, StreamLimits())


async def test_without_jetstream_it_is_said_that_it_is_away(tmp_path, nats_server):
    async with connect(BusSettings(nats_server.url, "test")) as bus:
        with pytest.raises(Unavailable):
            await jetstream.read(bus, "NONE", EVENTS, 1)
        with pytest.raises(Unavailable):
            await jetstream.publish(bus, subject(), b"x")
        with pytest.raises(Unavailable):
            await jetstream.last_message(bus, "NONE", EVENTS)


async def test_a_log_is_read_in_order_and_nothing_of_another(bus):
    first, *_ = await put(bus, "plan", "turn", "plan")
    await put(bus, "plan", session="s2")
    await put(bus, "git_status", log="workspace")
    page = await jetstream.read(bus, STREAM, EVENTS, 1)

    assert [stored.data for stored in page.messages] == [b"plan", b"turn", b"plan"]
    assert [stored.subject for stored in page.messages] == [subject("plan"), subject("turn"), subject("plan")]
    rest = await jetstream.read(bus, STREAM, EVENTS, first + 1)
    assert len(rest.messages) == 2
    assert not rest.more


async def test_an_empty_page_says_how_far_the_log_was_read(bus):
    *_, last = await put(bus, "plan", "turn")
    [other] = await put(bus, "plan", session="s2")
    page = await jetstream.read(bus, STREAM, EVENTS, last + 1)

    assert (page.messages, page.more, page.last_seq) == ([], False, other)
    empty = await config(bus, subjects.STREAM_WORKSPACE)
    assert (await jetstream.read(bus, subjects.STREAM_WORKSPACE, EVENTS, 1)).last_seq == empty[
        "first_seq"
    ] - 1


@pytest.mark.timeout(20)
async def test_a_log_of_many_megabytes_is_read_page_by_page(bus):
    block = os.urandom(1024 * 1024)
    sent = [await jetstream.publish(bus, subject(), b"%02d" % n + block) for n in range(10)]
    pages = []
    seq = 1
    while (page := await jetstream.read(bus, STREAM, EVENTS, seq)).messages:
        pages.append(page)
        seq = page.messages[-1].seq + 1

    assert [stored.seq for page in pages for stored in page.messages] == sent
    assert all(sum(len(stored.data) for stored in page.messages) <= 6 * 1024 * 1024 for page in pages)
    assert all(page.more for page in pages[:-1])
    assert [stored.seq async for stored in jetstream.read_all(bus, STREAM, EVENTS)] == sent


async def test_one_message_larger_than_a_page_is_read_all_the_same(bus):
    await jetstream.publish(bus, subject(), b"x" * 7_000_000)
    page = await jetstream.read(bus, STREAM, EVENTS, 1)

    assert [len(stored.data) for stored in page.messages] == [7_000_000]


async def test_the_newest_of_each_type_is_read_as_it_was(bus):
    seqs = await put(bus, "plan", "turn", "plan", "turn")
    wanted = [subject("plan"), subject("turn"), subject("never")]

    newest = await jetstream.read_last(bus, STREAM, wanted)
    assert [stored.seq for stored in newest.messages] == seqs[2:]
    earlier = await jetstream.read_last(bus, STREAM, wanted, up_to=seqs[2])
    assert [stored.seq for stored in earlier.messages] == seqs[1:3]
    assert (await jetstream.read_last(bus, STREAM, wanted[2:])).messages == []


async def test_first_and_last_come_from_the_leader(bus):
    seqs = await put(bus, "plan", "turn", "plan")

    assert (await jetstream.last_message(bus, STREAM, EVENTS)).seq == seqs[2]
    assert (await jetstream.first_message(bus, STREAM, subject("turn"))).seq == seqs[1]
    assert await jetstream.first_message(bus, STREAM, EVENTS, seqs[2] + 1) is None
    assert await jetstream.last_message(bus, STREAM, subject("never")) is None


async def test_a_flood_discards_its_own_past_only(bus):
    await streams.ensure(bus, StreamLimits(workspace_per_subject=5))
    await put(bus, "git_status", log="workspace")
    await put(bus, *["shell_output"] * 20, log="workspace")
    kept = [
        stored.data
        async for stored in jetstream.read_all(
            bus, subjects.STREAM_WORKSPACE, subjects.log_events("ada", "s1", "workspace")
        )
    ]

    assert kept == [b"git_status"] + [b"shell_output"] * 5


async def test_a_log_can_be_forgotten(bus):
    await put(bus, "plan", "turn")
    await put(bus, "plan", session="s2")
    await jetstream.purge(bus, STREAM, EVENTS)

    assert (await jetstream.read(bus, STREAM, EVENTS, 1)).messages == []
    other = subjects.log_events("ada", "s2", "agent")
    assert len((await jetstream.read(bus, STREAM, other, 1)).messages) == 1


async def test_a_broker_without_its_store_is_not_read_for_ever(nats_server, bus):
    nats_server.pause()
    try:
        with pytest.raises(Unavailable):
            await jetstream._direct(bus, STREAM, {"seq": 1, "next_by_subj": EVENTS}, timeout=0.1)
    finally:
        nats_server.resume()


@pytest.mark.parametrize(
    ("data", "seq"),
    [
        (b'{"stream":"S", "seq":7}', 7),
        (b'{"error":{"code":503},"seq":0}', None),
        (b"", None),
        (b"junk", None),
        (b'{"stream":"S","domain":"d","seq":12,"duplicate":true}', 12),
    ],
)
def test_an_acknowledgement_is_a_sequence_or_none(data, seq):
    assert jetstream.ack_sequence(data) == seq


async def test_a_bucket_is_written_by_compare_and_swap(bus):
    bucket = Bucket(bus, subjects.BUCKET_SESSIONS)
    first = await bucket.put("u_ada.s1", b"one", expected=0)
    with pytest.raises(WrongRevision):
        await bucket.put("u_ada.s1", b"two", expected=0)
    second = await bucket.put("u_ada.s1", b"two", expected=first)
    with pytest.raises(WrongRevision):
        await bucket.put("u_ada.s1", b"three", expected=first)

    entry = await bucket.get("u_ada.s1")
    assert (entry.key, entry.value, entry.revision) == ("u_ada.s1", b"two", second)


async def test_a_key_that_was_deleted_is_gone_and_can_be_taken_again(bus):
    bucket = Bucket(bus, subjects.BUCKET_SESSIONS)
    await bucket.put("u_ada.s1", b"one")
    await bucket.put("u_ada.s2", b"two")
    await bucket.delete("u_ada.s1")

    assert await bucket.get("u_ada.s1") is None
    assert await bucket.get("u_ada.s9") is None
    assert [entry.key for entry in await bucket.entries("u_ada.*")] == ["u_ada.s2"]
    marker = await jetstream.last_message(
        bus, subjects.bucket_stream(bucket.name), subjects.bucket_key(bucket.name, "u_ada.s1")
    )
    assert await bucket.put("u_ada.s1", b"again", expected=marker.seq) > marker.seq


async def test_of_two_who_take_a_key_at_once_one_wins(bus):

    bucket = Bucket(bus, subjects.BUCKET_OWNERS)
    results = await asyncio.gather(
        *(bucket.put("s1", b"%d" % n, expected=0) for n in range(8)), return_exceptions=True
    )

    assert sum(isinstance(result, int) for result in results) == 1
    assert sum(isinstance(result, WrongRevision) for result in results) == 7


async def test_epochs_rise_even_over_a_bucket_made_anew(bus):
    bucket = Bucket(bus, subjects.BUCKET_OWNERS)
    before = await bucket.put("s1", b"one")
    await jetstream.api(bus, subjects.stream_api("DELETE", subjects.bucket_stream(bucket.name)))
    await streams.ensure(bus, StreamLimits())

    assert await bucket.put("s1", b"two", expected=0) > before
    await streams.ensure(bus, StreamLimits())
    assert (await bucket.get("s1")).value == b"two"


async def test_sequences_rise_even_over_a_stream_made_anew(bus):
    [before] = await put(bus, "plan")
    await jetstream.api(bus, subjects.stream_api("DELETE", STREAM))
    await streams.ensure(bus, StreamLimits())

    [after] = await put(bus, "plan")
    assert after > before
    assert [stored.seq async for stored in jetstream.read_all(bus, STREAM, EVENTS)] == [after]


@pytest.mark.parametrize("update", [True, False])
async def test_where_a_stream_begins_is_left_to_whoever_made_it(nats_server, bus, update):
    """Two replicas that start at once both find nothing, and each makes it for its own time; nothing may be lost."""
    kept = await put(bus, *["plan"] * 5)
    later = streams.event_streams(StreamLimits(), kept[-1] + 1_000_000)
    for config in later:
        await jetstream.ensure_stream(bus, config, update=update)
    await nats_server.restart(kill=True)
    await bus.wait_connected()

    assert [stored.seq async for stored in jetstream.read_all(bus, STREAM, EVENTS)] == kept


async def test_what_is_stored_survives_a_restart_of_the_broker(nats_server, bus):
    await put(bus, "plan")
    await nats_server.restart(kill=True)
    await bus.wait_connected()

    assert len((await jetstream.read(bus, STREAM, EVENTS, 1)).messages) == 1


@pytest.mark.timeout(30)
async def test_an_entry_that_is_written_while_all_are_read_is_listed_once(bus):
    bucket = Bucket(bus, subjects.BUCKET_SESSIONS)
    for number in range(4):
        await bucket.put(f"u_ada.s{number}", b"old")
    writing = asyncio.create_task(write_again(bucket))
    listed = [await bucket.entries("u_ada.*") for _ in range(20)]
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)

    assert [sorted(entry.key for entry in entries) for entries in listed] == [
        sorted(f"u_ada.s{number}" for number in range(4))
    ] * 20


async def write_again(bucket):
    while True:
        for number in range(4):
            await bucket.put(f"u_ada.s{number}", b"new")
