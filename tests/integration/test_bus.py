"""One connection to a real NATS: what its user hears when the broker is slow, away, back, or says no."""

import asyncio
import contextlib
import time

import pytest
from tieline_protocol.bus import Bus, BusSettings, Received, connect
from tieline_protocol.errors import (
    Code,
    FateUnknown,
    NoResponders,
    ProtocolError,
    Refused,
    TimedOut,
    Unavailable,
)
from tieline_protocol.messages import outcome

from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer


async def echo(received: Received) -> bytes:
    return received.data


async def connected(bus: Bus) -> None:
    await asyncio.wait_for(bus.wait_connected(), 5)


async def test_a_request_is_answered(bus):
    server = await bus.serve("test.echo", echo)

    assert (await bus.request("test.echo", b"hello", 2)).data == b"hello"
    await server.close()


async def test_where_nobody_is_a_request_fails_at_once(bus):
    began = time.monotonic()
    with pytest.raises(NoResponders):
        await bus.request("test.nobody", b"", 5)

    assert time.monotonic() - began < 1


async def test_who_does_not_answer_in_time_times_out(bus):
    heard = []
    await bus.subscribe("test.silent", heard.append)
    with pytest.raises(TimedOut):
        await bus.request("test.silent", b"", 0.05)

    assert len(heard) == 1


async def test_a_request_fails_at_the_disconnect_not_at_its_time_out(nats_server, bus):
    heard = []
    await bus.subscribe("test.silent", heard.append)
    asking = asyncio.create_task(bus.request("test.silent", b"", 60))
    await eventually(lambda: heard)

    await nats_server.kill()

    with pytest.raises(FateUnknown):
        await asyncio.wait_for(asking, 2)


async def test_nothing_is_taken_while_the_broker_is_away(nats_server, bus):
    down, up = asyncio.Event(), asyncio.Event()
    bus.on_disconnect(down.set)
    bus.on_reconnect(up.set)
    await nats_server.kill()
    await asyncio.wait_for(down.wait(), 2)

    assert not bus.connected
    with pytest.raises(Unavailable):
        await bus.publish("test.a", b"x")
    with pytest.raises(Unavailable):
        await bus.request("test.a", b"x", 2)
    await nats_server.start()
    await asyncio.wait_for(up.wait(), 5)
    assert bus.connected


@pytest.mark.parametrize("kill", [True, False])
async def test_subscriptions_are_there_again_after_a_restart_and_know_of_it(nats_server, bus, kill):
    heard, lost = [], []
    subscription = await bus.subscribe("test.a", heard.append, on_lost=lambda: lost.append(1))
    server = await bus.serve("test.echo", echo)
    await nats_server.restart(kill=kill)
    await connected(bus)

    await bus.publish("test.a", b"after")
    await eventually(lambda: heard)
    assert [received.data for received in heard] == [b"after"]
    assert lost == [1]
    assert (await bus.request("test.echo", b"x", 2)).data == b"x"
    await subscription.close()
    await server.close()


async def test_what_was_not_sent_is_not_sent_later(nats_server, bus):
    """A request that failed at the disconnect must not be carried out a minute later."""
    down = asyncio.Event()
    bus.on_disconnect(down.set)
    heard = []
    await bus.subscribe("test.a", heard.append)
    nats_server.pause()
    await bus.publish("test.a", b"stale" * 200_000)
    bus._nc._pending.append(b"PUB test.a 5\r\nstale\r\n")  # as when the socket takes no more
    bus._nc._pending_data_size += 1
    await nats_server.kill()
    await asyncio.wait_for(down.wait(), 2)
    await nats_server.start()
    await connected(bus)

    await bus.publish("test.a", b"fresh")
    await eventually(lambda: heard)
    assert [received.data for received in heard] == [b"fresh"]


@pytest.mark.timeout(20)
async def test_a_broker_that_hangs_is_noticed_though_it_reads_nothing(nats_server):
    settings = BusSettings(nats_server.url, "test", ping_interval=0.1)
    async with connect(settings) as bus:
        down = asyncio.Event()
        bus.on_disconnect(down.set)
        nats_server.pause()
        with contextlib.suppress(Unavailable):
            for _ in range(3):
                await bus.publish("test.a", b"x" * 7_000_000)  # more than the socket takes
        await asyncio.wait_for(down.wait(), 5)
        with pytest.raises(Unavailable):
            await bus.publish("test.a", b"x")
        nats_server.resume()
        await connected(bus)


async def test_a_stop_is_heeded_while_the_broker_takes_nothing(nats_server, bus):
    """nats-py swallows the cancellation of whoever waits for its buffer."""
    nats_server.pause()

    async def flood() -> None:
        while True:
            await bus.publish("test.a", b"x" * 4_000_000)

    flooding = asyncio.create_task(flood())
    await eventually(lambda: bus._nc.pending_data_size > 4_000_000)
    flooding.cancel()
    done, _ = await asyncio.wait([flooding], timeout=3)
    assert done
    assert flooding.cancelled()
    nats_server.resume()


async def test_a_request_times_out_while_the_broker_takes_nothing(nats_server, bus):
    nats_server.pause()
    with pytest.raises(TimedOut):
        await asyncio.wait_for(bus.request("test.b", b"x" * 7_000_000, 0.2), 4)
    nats_server.resume()


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB x 0\r\n", "a\tb", "ünï", "x" * 3_000, "a\x00b"])
async def test_a_bad_subject_is_refused_before_it_is_sent(bus, subject):
    """B29"""
    for call in (
        lambda: bus.publish(subject, b""),
        lambda: bus.request(subject, b"", 1),
        lambda: bus.subscribe(subject, print),
    ):
        with pytest.raises(ProtocolError):
            await call()
    if subject:
        with pytest.raises(ProtocolError):
            await bus.publish("test.a", b"", subject)
    await bus.flush()
    assert bus.connected


async def test_what_is_too_large_is_refused_before_it_is_sent_and_the_connection_stays(nats_server, bus):
    """B24, B26: the broker would hang up, and every other request with it."""
    went = []
    bus.on_disconnect(lambda: went.append(1))
    assert bus.max_payload == 8_000_000 or bus.max_payload == 8 * 1024 * 1024
    for size, headers in ((bus.max_payload + 1, None), (bus.max_payload - 50, {"a": "b" * 50})):
        with pytest.raises(Refused) as caught:
            await bus.publish("test.a", b"x" * size, headers=headers)
        assert caught.value.code == Code.TOO_LARGE
    await bus.publish("test.a", b"x" * bus.max_payload)
    await bus.flush()

    assert not went


async def test_an_answer_that_is_too_large_is_told_to_whoever_asked(bus):
    async def large(_: Received) -> bytes:
        return b"x" * (bus.max_payload + 1)

    server = await bus.serve("test.large", large)
    with pytest.raises(Refused, match="more than the broker takes"):
        outcome((await bus.request("test.large", b"", 5)).data)
    await server.close()


async def test_an_error_of_the_broker_does_not_end_the_connection_for_good(nats_server, bus):
    """nats-py closes for good at any error that it does not know."""
    heard = []
    await bus.subscribe("test.a", heard.append)
    up = asyncio.Event()
    bus.on_reconnect(up.set)
    bus._nc._transport.write(b"NONSENSE\r\n")
    await asyncio.wait_for(up.wait(), 5)

    await bus.publish("test.a", b"x")
    await eventually(lambda: heard)


async def test_a_refused_subject_leaves_the_connection_alone(tmp_path):
    allowed = '{ publish: "ok.>", subscribe: ["ok.>", "_INBOX.>"] }'
    extra = f"authorization {{ users: [ {{ user: u, password: p, permissions: {allowed} }} ] }}"
    async with (
        NatsServer(tmp_path, extra=extra) as server,
        connect(BusSettings(server.url, "test", user="u", password="p")) as bus,
    ):
        heard = []
        await bus.subscribe("ok.a", heard.append)
        await bus.publish("denied.a", b"")
        await bus.publish("ok.a", b"x")
        await eventually(lambda: heard)
        assert bus.connected


async def test_a_refused_login_is_tried_again_and_can_be_interrupted(tmp_path):
    extra = "authorization { user: u, password: p }"
    async with NatsServer(tmp_path, extra=extra) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5), connect(BusSettings(server.url, "t", user="u", password="no")):
                raise AssertionError("let in")
        async with connect(BusSettings(server.url, "t", user="u", password="p")) as bus:
            await bus.flush()


async def test_a_refused_login_can_be_interrupted_at_any_moment(tmp_path):
    """An interruption that comes together with the refusal is not lost."""

    async def attempt(seconds: float) -> None:
        async with asyncio.timeout(seconds), connect(BusSettings(server.url, "t", user="u", password="no")):
            raise AssertionError("let in")

    async with NatsServer(tmp_path, extra="authorization { user: u, password: p }") as server:
        attempts = [asyncio.create_task(attempt(n / 500)) for n in range(300)]
        _, stuck = await asyncio.wait(attempts, timeout=6)
        for one in stuck:
            one.cancel()
        ends = await asyncio.gather(*attempts, return_exceptions=True)

    assert not stuck
    assert {type(end) for end in ends} == {TimeoutError}


async def test_a_broker_that_is_not_there_yet_is_waited_for(nats_server):
    await nats_server.kill()

    async def ask() -> int:
        async with connect(BusSettings(nats_server.url, "test")) as bus:
            return bus.max_payload

    asking = asyncio.create_task(ask())
    done, _ = await asyncio.wait([asking], timeout=0.3)
    assert not done
    await nats_server.start()
    assert await asyncio.wait_for(asking, 5) > 1_000_000


async def test_waiting_for_a_broker_can_be_interrupted(nats_server):
    await nats_server.kill()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3), connect(BusSettings(nats_server.url, "test")):
            raise AssertionError("connected to nothing")


async def test_leaving_while_the_broker_is_away_takes_no_time(nats_server):
    async with connect(BusSettings(nats_server.url, "test")) as bus:
        await nats_server.kill()
        await eventually(lambda: not bus.connected)
        began = time.monotonic()
    assert time.monotonic() - began < 2


async def test_whoever_is_too_slow_is_told_and_nobody_else_loses_anything(nats_server, bus):
    """B37"""
    other = []
    await bus.subscribe("test.burst", other.append)
    async with bus.following("test.burst", bound=100) as slow:
        for n in range(200):
            await bus.publish("test.burst", b"%03d" % n)
        await eventually(lambda: len(other) == 200)

        assert await anext(slow) is None
        few = await anext(slow)
        assert few is not None
        assert [received.data for received in few] == [b"%03d" % n for n in range(200 - len(few), 200)]
        await bus.publish("test.burst", b"more")
        assert [received.data for received in await anext(slow)] == [b"more"]


async def test_a_message_that_cannot_be_handled_does_not_end_the_subscription(bus):
    heard = []

    def handle(received: Received) -> None:
        heard.append(received.data)
        if received.data == b"bad":
            raise ValueError("bad")

    await bus.subscribe("test.a", handle)
    await bus.publish("test.a", b"bad")
    await bus.publish("test.a", b"good")
    await eventually(lambda: len(heard) == 2)


async def test_following_hands_out_messages_in_order(bus):
    async with bus.following("test.>") as messages:
        for n in range(100):
            await bus.publish(f"test.{n}", b"%d" % n)
        seen = []
        async for some in messages:
            assert some is not None
            seen += [received.data for received in some]
            if len(seen) == 100:
                break
    assert seen == [b"%d" % n for n in range(100)]


async def test_following_is_bounded_and_says_what_was_lost(bus):
    async with bus.following("test.a", bound=1_000) as messages:
        for n in range(20):
            await bus.publish("test.a", b"%03d" % n + b"x" * 97)
        await bus.flush()
        await eventually(lambda: messages._messages and messages._messages[-1].data.startswith(b"019"))

        assert await anext(messages) is None
        kept = await anext(messages)
        assert kept is not None
        assert [received.data[:3] for received in kept] == [b"%03d" % n for n in range(20 - len(kept), 20)]
        assert len(kept) <= 11


async def test_following_says_where_the_link_was_down(nats_server, bus):
    async with bus.following("test.a") as messages:
        await nats_server.restart(kill=True)
        await connected(bus)
        assert await asyncio.wait_for(anext(messages), 2) is None


async def test_one_slow_handler_blocks_nobody(bus):
    """B31"""
    release = asyncio.Event()

    async def handle(received: Received) -> bytes:
        if received.data == b"slow":
            await release.wait()
        return received.data

    server = await bus.serve("test.work", handle)
    slow = asyncio.create_task(bus.request("test.work", b"slow", 9))
    await eventually(lambda: server.in_flight == 1)
    began = time.monotonic()
    for _ in range(10):
        assert (await bus.request("test.work", b"quick", 1)).data == b"quick"

    assert time.monotonic() - began < 1
    release.set()
    assert (await slow).data == b"slow"
    await server.close()


async def test_above_the_limit_the_answer_is_busy(bus):
    release = asyncio.Event()

    async def handle(_: Received) -> bytes:
        await release.wait()
        return b'{"payload":{}}'

    server = await bus.serve("test.work", handle, limit=2)
    working = [asyncio.create_task(bus.request("test.work", b"", 9)) for _ in range(2)]
    await eventually(lambda: server.in_flight == 2)
    with pytest.raises(Refused) as caught:
        outcome((await bus.request("test.work", b"", 5)).data)

    assert caught.value.code == Code.BUSY
    release.set()
    await asyncio.gather(*working)
    await server.close()


async def test_closing_waits_for_what_is_under_way_and_takes_nothing_new(bus):
    release = asyncio.Event()

    async def handle(received: Received) -> bytes:
        await release.wait()
        return received.data

    server = await bus.serve("test.work", handle)
    working = [asyncio.create_task(bus.request("test.work", b"%d" % n, 9)) for n in range(5)]
    await eventually(lambda: server.in_flight == 5)
    closing = asyncio.create_task(server.close())
    await eventually(lambda: server._subscription is not None and server._subscription._subscription is None)

    async def nobody() -> bool:
        try:
            await bus.request("test.work", b"late", 0.2)
        except NoResponders:
            return True
        except TimedOut:
            return False
        return False

    await eventually(nobody)
    assert not closing.done()
    release.set()
    assert [(await task).data for task in working] == [b"0", b"1", b"2", b"3", b"4"]
    await closing


async def test_closing_ends_what_takes_too_long(bus):
    async def handle(_: Received) -> bytes:
        await asyncio.Event().wait()
        return b""

    server = await bus.serve("test.work", handle)
    working = asyncio.create_task(bus.request("test.work", b"", 9))
    await eventually(lambda: server.in_flight == 1)
    await server.close(grace=0.05)

    assert server.in_flight == 0
    working.cancel()


async def test_a_handler_that_fails_is_answered_for_and_the_server_goes_on(bus):
    async def handle(received: Received) -> bytes | None:
        if received.data == b"bad":
            raise ValueError("bad")
        return None if received.data == b"silent" else b'{"payload":{}}'

    server = await bus.serve("test.work", handle)
    with pytest.raises(Refused) as caught:
        outcome((await bus.request("test.work", b"bad", 5)).data)

    assert caught.value.code == Code.INTERNAL
    assert "bad" not in caught.value.message
    with pytest.raises(TimedOut):
        await bus.request("test.work", b"silent", 0.05)
    assert outcome((await bus.request("test.work", b"", 5)).data) == {}
    await bus.publish("test.work", b"nobody waits for the answer")
    await eventually(lambda: server.stats.requests == 4)
    assert (server.stats.errors, server.stats.last_error) == (1, "ValueError('bad')")
    await server.close()


async def test_an_exchange_hears_several_answers_and_the_disconnect(nats_server, bus):
    def answer(received: Received) -> None:
        tasks.append(asyncio.create_task(send(received.reply)))

    async def send(reply: str) -> None:
        for n in range(3):
            await bus.publish(reply, b"%d" % n)

    tasks: list[asyncio.Task[None]] = []
    await bus.subscribe("test.many", answer)
    async with bus.exchange("test.many", b"") as answers:
        assert [(await answers.next(2)).data for _ in range(3)] == [b"0", b"1", b"2"]
        with pytest.raises(TimedOut):
            await answers.next(0.05)
        await nats_server.kill()
        with pytest.raises(FateUnknown):
            await answers.next(5)
    await asyncio.gather(*tasks)


async def test_an_exchange_with_nobody_fails_at_once(bus):
    async with bus.exchange("test.nobody", b"") as answers:
        with pytest.raises(NoResponders):
            await answers.next(5)


async def test_a_callback_that_fails_does_not_keep_others_from_hearing(nats_server, bus):
    heard = []

    def broken() -> None:
        raise ValueError("broken")

    stop = bus.on_reconnect(broken)
    bus.on_reconnect(lambda: heard.append(1))
    await nats_server.restart()
    await eventually(lambda: heard)
    stop()
    await bus.flush()
