"""What a viewer sees of a session: each event exactly once and in order, whenever and however it comes to it."""

from __future__ import annotations

import asyncio
import functools
import gc
from typing import Any

import pytest
from tieline_gateway.config import Limits
from tieline_gateway.hub import Step
from tieline_protocol import jetstream, subjects
from tieline_protocol.batch import Batch, encode
from tieline_protocol.cursor import Cursor
from websockets.asyncio.client import connect

from tests.support.eventually import eventually
from tests.support.gateway import Raw, frontend, gateway, token
from tests.support.nats_server import NatsServer
from tests.support.owner import Owner, owning

QUICK = Limits(drain_seconds=0.1, silence_seconds=0.2, silence_most=0.4)


async def watch(
    front: Raw, log: str = "agent", cursor: str | None = None, session: str = "s1"
) -> dict[str, Any]:
    """Subscribe to one log; what was told of it."""
    payload: dict[str, Any] = {"session_id": session, "logs": [log]}
    if cursor is not None:
        payload["cursors"] = {log: cursor}
    told = await front.ask("session.subscribe", payload)
    assert told["type"] == "response", told
    answer: dict[str, Any] = told["payload"]["logs"][log]
    return answer


async def chunks(owner: Owner, *numbers: int, log: str = "agent", confirm: bool = True) -> None:
    kind = "message_chunk" if log == "agent" else "shell_output"
    for n in numbers:
        await owner.logs[log].emit({"type": kind, "n": n}, confirm=confirm)


async def sees(front: Raw, n: int, log: str = "agent") -> None:
    await front.until(lambda: n in front.numbers(log))


# Where a viewer begins


async def test_the_answer_comes_before_the_first_event(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await chunks(owner, *range(50))
        await front.ask("session.subscribe", {"session_id": "s1"})
        await sees(front, 49)

    kinds = [(f["type"], f["action"]) for f in front.frames[1:]]
    assert kinds[0] == ("response", "session.subscribe")
    assert set(kinds[1:]) == {("notification", "session.event")}


async def test_without_a_cursor_the_agent_log_comes_whole_and_the_workspace_as_its_state(
    nats_server: NatsServer,
) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await chunks(owner, 1, 2)
        for n in (1, 2):
            await owner.workspace.emit({"type": "git_status", "branch": f"b{n}"})
            await owner.workspace.emit({"type": "processes", "running": [n]})
        await chunks(owner, 1, 2, log="workspace")
        await front.ask("session.subscribe", {"session_id": "s1"})
        await sees(front, 2)
        await front.until(lambda: len(front.of("workspace")) == 2)
        await chunks(owner, 3, log="workspace")
        await sees(front, 3, "workspace")

    assert [e["event"]["type"] for e in front.of("agent")] == ["epoch", "message_chunk", "message_chunk"]
    assert [e["event"] for e in front.of("workspace")] == [
        {"type": "git_status", "branch": "b2"},
        {"type": "processes", "running": [2]},
        {"type": "shell_output", "n": 3},
    ]


async def test_going_on_after_a_snapshot_neither_repeats_nor_leaves_out(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url:
        await owner.workspace.emit({"type": "git_status", "branch": "main"})
        await chunks(owner, 1, 2, 3, log="workspace")
        async with frontend(url) as front:
            told = await watch(front, "workspace")
            await front.until(lambda: front.of("workspace"))
            cursor = front.events[-1]["cursor"]
        await chunks(owner, 4, log="workspace")
        async with frontend(url) as again:
            await watch(again, "workspace", cursor)
            await sees(again, 4, "workspace")

    assert told == {"cursor": cursor, "reset": False}
    assert [e["event"].get("n") for e in again.events] == [4]


async def test_now_is_live_only(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await chunks(owner, 1, 2)
        await watch(front, cursor="now")
        await chunks(owner, 3)
        await sees(front, 3)

    assert [e["event"].get("n") for e in front.events] == [3]


async def test_start_on_the_workspace_log_brings_all_that_is_kept(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await chunks(owner, *range(20), log="workspace")
        await watch(front, "workspace", "start")
        await sees(front, 19, "workspace")

    assert front.numbers("workspace") == list(range(20))


async def test_a_cursor_in_the_middle_of_a_batch(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url:
        await owner.agent.emit(*({"type": "message_chunk", "n": n} for n in range(10)))
        async with frontend(url) as front:
            await watch(front)
            await sees(front, 9)
            cursor = next(e["cursor"] for e in front.events if e["event"].get("n") == 4)
        async with frontend(url) as again:
            await watch(again, cursor=cursor)
            await sees(again, 9)

    assert again.numbers() == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    "cursor", ["1.5.7", "99999999999999.1.1", "9999999999999999999.9999999999999999999.0"]
)
async def test_a_cursor_of_an_epoch_that_is_not_kept_is_reset_to_a_snapshot(
    nats_server: NatsServer, cursor: str
) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await owner.agent.emit({"type": "turn", "generation": 1, "state": "ended"})
        await chunks(owner, 1)
        told = await watch(front, cursor=cursor)
        await front.until(lambda: front.events)
        await chunks(owner, 2)
        await sees(front, 2)

    assert told["reset"] is True
    assert [e["event"]["type"] for e in front.events] == ["turn", "message_chunk"]


async def test_a_cursor_beyond_the_log_is_reset(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await chunks(owner, 1)
        told = await watch(front, cursor=str(Cursor(owner.epoch, 50, owner.agent.at)))
        await chunks(owner, 2)
        await sees(front, 2)

    assert told["reset"] is True
    assert front.numbers() == [2]


async def test_events_that_were_discarded_are_told_as_one_gap(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await chunks(owner, *range(10))
        await owner.agent.emit({"type": "turn", "generation": 1, "state": "ended"})
        subject = subjects.event("ada", "s1", "agent", "message_chunk")
        await jetstream.purge(owner.bus, subjects.STREAM_AGENT, subject)
        await watch(front)
        await front.until(lambda: len(front.events) == 3)

    assert [e["event"]["type"] for e in front.events] == ["epoch", "gap", "turn"]
    gap = front.events[1]
    assert gap["event"] == {"type": "gap", "reason": "retention", "events": 10}
    assert gap["cursor"].startswith(f"{owner.epoch}.11.")


async def test_somebody_elses_session_is_not_found(nats_server: NatsServer) -> None:
    async with owning(nats_server.url, "bob"), gateway(nats_server.url) as url, frontend(url) as front:
        told = await front.ask("session.subscribe", {"session_id": "s1"})

    assert told["payload"]["code"] == "not_found"


async def test_a_closed_session_can_be_read_to_its_end(nats_server: NatsServer) -> None:
    async with (
        owning(nats_server.url) as owner,
        gateway(nats_server.url) as url,
        frontend(url) as front,
    ):
        await chunks(owner, 1, 2)
        await owner.agent.emit({"type": "session", "state": "closed"})
        await owner.leave()
        await owner.record(state="closed", wanted="closed")
        await front.ask("session.subscribe", {"session_id": "s1"})
        await front.until(lambda: any(e["event"]["type"] == "session" for e in front.events))

    assert front.numbers() == [1, 2]


async def test_a_session_whose_owner_is_away_can_be_read_and_goes_on_when_it_is_back(
    nats_server: NatsServer,
) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await chunks(owner, 1, 2)
        await owner.leave()
        await front.ask("session.subscribe", {"session_id": "s1"})
        await sees(front, 2)
        await owner.take(clean=False)
        await owner.serve()
        await chunks(owner, 3)
        await sees(front, 3)

    types = [e["event"].get("n", e["event"]["type"]) for e in front.of("agent")]
    assert types == ["epoch", 1, 2, "epoch", 3]


async def test_an_empty_log_begins_with_its_opening(nats_server: NatsServer) -> None:
    async with (
        owning(nats_server.url, open=False) as owner,
        gateway(nats_server.url) as url,
        frontend(url) as front,
    ):
        await owner.record(state="opening")
        await front.ask("session.subscribe", {"session_id": "s1"})
        await owner.take()
        await owner.serve()
        await chunks(owner, 1)
        await sees(front, 1)
        await front.until(lambda: front.of("workspace"))

    assert [e["event"]["type"] for e in front.of("agent")] == ["epoch", "message_chunk"]
    assert [e["event"]["type"] for e in front.of("workspace")] == ["epoch"]


# Twice, and not any more


async def test_reconnecting_again_and_again_replays_what_was_missed_once(nats_server: NatsServer) -> None:
    """B46"""
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url:
        async with frontend(url) as front:
            await watch(front)
            await chunks(owner, *range(1, 51))
            await sees(front, 50)
            cursor = front.events[-1]["cursor"]
        await chunks(owner, *range(51, 61))
        for _ in range(3):
            async with frontend(url) as brief:
                await watch(brief, cursor=cursor)
        async with frontend(url) as front:
            await watch(front, cursor=cursor)
            await watch(front, cursor=cursor)
            await watch(front)
            await sees(front, 60)
            await chunks(owner, 61, 62)
            await sees(front, 62)

    assert front.numbers() == list(range(51, 63))


async def test_subscribing_with_another_cursor_replaces_and_does_not_double(nats_server: NatsServer) -> None:
    """B46"""
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await chunks(owner, 1, 2)
        await watch(front, cursor="now")
        await watch(front, cursor="start")
        await sees(front, 2)
        await chunks(owner, 3)
        await sees(front, 3)

    assert front.numbers() == [1, 2, 3]


async def test_nothing_comes_after_unsubscribing(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await front.ask("session.subscribe", {"session_id": "s1"})
        await chunks(owner, 1)
        await sees(front, 1)
        told = await front.ask("session.unsubscribe", {"session_id": "s1", "logs": ["agent"]})
        await chunks(owner, 2)
        await chunks(owner, 3, log="workspace")
        await sees(front, 3, "workspace")

    assert told["payload"] == {}
    assert front.numbers() == [1]


async def test_a_log_that_nobody_follows_any_more_costs_no_memory(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        gc.disable()  # what is garbage in a circle stays for very long in a process that makes little of it
        try:
            before = kept()
            await watch(front)
            for n in range(4):
                await owner.logs["agent"].emit({"type": "message_chunk", "n": n, "text": "x" * 200_000})
            await sees(front, 3)
            while_followed = kept()
            await front.ask("session.unsubscribe", {"session_id": "s1"})
            await eventually(lambda: kept() <= before)
        finally:
            gc.enable()

    assert while_followed > before


def kept() -> int:
    """Steps that are in memory."""
    return sum(type(one) is Step for one in gc.get_objects())


async def test_more_logs_than_a_connection_may_follow_are_refused(nats_server: NatsServer) -> None:
    limits = Limits(drain_seconds=0.1, subscriptions=1)
    async with (
        owning(nats_server.url),
        gateway(nats_server.url, limits=limits) as url,
        frontend(url) as front,
    ):
        told = await front.ask("session.subscribe", {"session_id": "s1"})
        await watch(front)

    assert told["payload"]["code"] == "too_large"


# What may go wrong under way


async def test_live_events_that_the_broker_did_not_deliver_are_read_from_the_log(
    nats_server: NatsServer,
) -> None:
    """B37"""
    async with (
        owning(nats_server.url) as owner,
        gateway(nats_server.url, limits=Limits(pending=1_000)) as url,
        frontend(url) as front,
        frontend(url, "bob") as bob,
        owning(nats_server.url, "bob", "s2") as other,
    ):
        await watch(front)
        await watch(bob, session="s2")
        batches = [owner.agent.batch({"type": "message_chunk", "n": n}) for n in range(200)]
        for kind, batch in batches:
            await owner.agent.send(kind, batch, confirm=False)
        await other.agent.emit({"type": "message_chunk", "n": 1})
        await sees(front, 199)
        await bob.until(lambda: bob.numbers(session="s2") == [1])

    assert front.numbers() == list(range(200))


async def test_an_event_lost_on_the_way_is_found_after_a_silence(nats_server: NatsServer) -> None:
    async with (
        owning(nats_server.url) as owner,
        gateway(nats_server.url, limits=QUICK) as url,
        frontend(url) as front,
    ):
        await watch(front)
        await chunks(owner, 1)
        await sees(front, 1)
        kind, batch = owner.agent.batch({"type": "tool_call", "n": 2})
        await store_only(owner, kind, batch)
        await sees(front, 2)

    assert front.numbers() == [1, 2]


async def store_only(owner: Owner, kind: str, batch: Batch) -> None:
    """Store a batch of the owner's under another log's name first, where nobody hears it, then as it should be."""
    subject = subjects.event("ada", "s1", "agent", kind)
    stream = subjects.STREAM_AGENT
    # The live copy is lost when the stream takes the message by way of a subject of its own: sourced, not published.
    answer = await jetstream.api(owner.bus, subjects.stream_api("INFO", stream))
    config = answer["config"]
    hidden = "hidden.batches"
    config["subjects"] = [*config["subjects"], hidden]
    config["subject_transform"] = {"src": hidden, "dest": subject}
    await jetstream.api(owner.bus, subjects.stream_api("UPDATE", stream), config)
    seq = await jetstream.publish(owner.bus, hidden, encode(batch))
    owner.agent.confirmed, owner.agent.at = batch.last, seq


async def test_events_go_on_after_the_broker_was_restarted(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await front.ask("session.subscribe", {"session_id": "s1"})
        await chunks(owner, 1)
        await sees(front, 1)
        await nats_server.restart()
        await owner.bus.wait_connected()
        await chunks(owner, 2)
        await chunks(owner, 3, confirm=False)
        await sees(front, 3)

    assert front.numbers() == [1, 2, 3]


async def test_a_batch_published_again_shows_once(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await watch(front)
        kind, batch = owner.agent.batch({"type": "message_chunk", "n": 1}, {"type": "message_chunk", "n": 2})
        for _ in range(3):
            await owner.agent.send(kind, batch)
        await chunks(owner, 3)
        await sees(front, 3)

    assert front.numbers() == [1, 2, 3]


async def test_a_hole_is_waited_for_and_filled_by_the_owner(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await watch(front)
        await chunks(owner, 1)
        kind, missing = owner.agent.batch({"type": "message_chunk", "n": 2})
        _, later = owner.agent.batch({"type": "message_chunk", "n": 3})
        await owner.agent.send(kind, later, confirm=False)
        await sees(front, 1)
        await owner.agent.send(kind, missing, confirm=False)
        await owner.agent.send(kind, later, confirm=False)
        await sees(front, 3)

    assert front.numbers() == [1, 2, 3]


async def test_a_replaced_owner_that_goes_on_publishing_is_not_heard(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await watch(front)
        await chunks(owner, 1)
        await sees(front, 1)
        kind, late = owner.agent.batch({"type": "turn", "n": 99})
        await owner.take(clean=False)
        await owner.agent.emit({"type": "turn", "n": 2})
        epoch = owner.agent
        await owner.bus.publish(subjects.event("ada", "s1", "agent", kind), encode(late))
        await owner.bus.flush()
        assert epoch.epoch == owner.epoch
        await chunks(owner, 3)
        await sees(front, 3)
        async with frontend(url) as other:
            await watch(other, cursor="snapshot")
            await other.until(lambda: other.numbers() == [2])
            await chunks(owner, 4)
            await sees(other, 4)
        async with frontend(url) as whole:
            await watch(whole)
            await sees(whole, 4)

    assert [n for n in front.numbers() if n != 4] == [1, 2, 3]
    assert other.numbers() == [2, 4]
    assert whole.numbers() == [1, 2, 3, 4]
    lost = [e["event"] for e in whole.events if e["event"]["type"] == "gap"]
    assert lost == [{"type": "gap", "reason": "owner_lost", "events": 1}]


async def test_garbage_on_an_event_subject_is_passed_over(nats_server: NatsServer) -> None:
    """B15"""
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await watch(front)
        subject = subjects.event("ada", "s1", "agent", "message_chunk")
        for garbage in (b"", b"{}", b"\x01" * 40, encode(Batch(owner.epoch, 2, 1, 0, b"x"))[:-1]):
            await jetstream.publish(owner.bus, subject, garbage)
        await chunks(owner, 1)
        await sees(front, 1)
        async with frontend(url) as late:
            await watch(late)
            await sees(late, 1)

    assert front.numbers() == late.numbers() == [1]


async def test_viewers_who_join_during_a_flood_see_it_whole(nats_server: NatsServer) -> None:
    async with (
        owning(nats_server.url) as owner,
        gateway(nats_server.url) as url,
        asyncio.TaskGroup() as group,
    ):
        done = asyncio.Event()

        async def flood() -> None:
            for n in range(2_000):
                event = {"type": "shell_output", "n": n, "data": "x" * 1_000}
                await owner.workspace.emit(event, confirm=n % 20 == 0)
            done.set()

        async def view() -> list[int]:
            async with frontend(url) as front:
                await watch(front, "workspace", "start")
                await front.until(lambda: 1_999 in front.numbers("workspace"), 9)
                return front.numbers("workspace")

        group.create_task(flood())
        viewers = []
        for n in range(6):
            await eventually(functools.partial(_beyond, owner, n * 300))
            viewers.append(group.create_task(view()))

    for viewer in viewers:
        assert viewer.result() == list(range(2_000))


def _beyond(owner: Owner, offset: int) -> bool:
    return owner.workspace.last > offset


async def test_bytes_come_as_the_peer_wrote_them(nats_server: NatsServer) -> None:
    exact = b'{"type":"message_chunk", "text":"\\ud83d  \\u0000\\n\\n  caf\xc3\xa9","n":1.50e1}'
    async with (
        owning(nats_server.url) as owner,
        gateway(nats_server.url) as url,
        connect(url, proxy=None, compression=None) as socket,
    ):
        raw = Raw(socket)
        await raw.send(id="a", action="auth", payload={"token": token()})
        await socket.recv()
        subscribe = {"session_id": "s1", "logs": ["agent"], "cursors": {"agent": "now"}}
        await raw.send(id="b", action="session.subscribe", payload=subscribe)
        await socket.recv()
        await owner.agent.emit(exact)
        text = await socket.recv(decode=False)

    assert text.endswith(b'"event":' + exact + b"}}")
