"""Who gets in, as whom, and for how long."""

from __future__ import annotations

import asyncio

import pytest
from tieline_gateway.access import issue
from tieline_gateway.config import Limits
from tieline_protocol import subjects
from tieline_protocol.bus import Bus, Received
from tieline_protocol.messages import Changed
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.support.gateway import ORIGIN, SECRET, Raw, frontend, gateway, token
from tests.support.nats_server import NatsServer
from tests.support.owner import owning

SOON = Limits(drain_seconds=0.1, auth_seconds=0.3, silence_seconds=0.2)


async def closed(front: Raw) -> tuple[int, str]:
    """The code and reason with which the socket was closed."""
    await front.socket.wait_closed()
    return front.socket.close_code or 0, front.socket.close_reason or ""


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://app.example.attacker.tld",
        "https://app.example.evil.tld",
        "http://app.example:8080",
        "https://app.example",
        "http://user@app.example",
        "http://app.example@evil.example",
        "null",
        "",
    ],
)
async def test_a_page_of_another_origin_gets_403_before_the_broker_hears_of_it(
    nats_server: NatsServer, bus: Bus, origin: str
) -> None:
    """B50"""
    heard: list[Received] = []
    async with gateway(nats_server.url, allow_no_origin=False) as url:
        await bus.subscribe(">", heard.append)
        await bus.flush()
        with pytest.raises(InvalidStatus) as refused:
            async with connect(url, additional_headers={"Origin": origin}, proxy=None):
                pass
        await bus.flush()

    assert refused.value.response.status_code == 403
    own = (
        "_INBOX",
        "$KV.tieline_processes.",
        "$JS.",
    )  # answers, and the gateway's lease, which it renews anyway
    assert [r.subject for r in heard if not r.subject.startswith(own)] == []


async def test_the_configured_origin_gets_in(nats_server: NatsServer) -> None:
    """B50"""
    async with (
        gateway(nats_server.url, allow_no_origin=False) as url,
        frontend(url, origin=ORIGIN) as front,
    ):
        assert front.frames[0]["type"] == "response"


async def test_two_origins_at_once_are_none_of_ours(nats_server: NatsServer) -> None:
    """B50"""
    async with gateway(nats_server.url) as url:
        with pytest.raises(InvalidStatus) as refused:
            async with connect(url, additional_headers=[("Origin", ORIGIN), ("Origin", ORIGIN)], proxy=None):
                pass

    assert refused.value.response.status_code == 403


async def test_without_an_origin_only_where_that_is_configured(nats_server: NatsServer) -> None:
    """B50"""
    async with gateway(nats_server.url, allow_no_origin=False) as url:
        with pytest.raises(InvalidStatus) as refused:
            async with frontend(url):
                pass

    assert refused.value.response.status_code == 403


async def test_there_is_nothing_at_other_paths(nats_server: NatsServer) -> None:
    async with gateway(nats_server.url) as url:
        with pytest.raises(InvalidStatus) as refused:
            async with connect(url + "/other", proxy=None):
                pass

    assert refused.value.response.status_code == 404


async def test_the_answer_to_auth_says_who_and_how_much(nats_server: NatsServer) -> None:
    async with gateway(nats_server.url) as url, frontend(url, auth=False) as front:
        told = await front.ask("auth", {"token": token("ada@example.com")})

    payload = told["payload"]
    assert payload["user_id"] == "ada@example.com"
    assert payload["protocol"] == 1
    assert payload["connection_id"]
    assert payload["limits"]["frame_bytes"] == 7 * 1024 * 1024
    assert payload["limits"]["result_bytes"] == 5_000_000
    assert payload["limits"]["in_flight"] > 0
    assert payload["limits"]["subscriptions"] > 0


async def test_a_token_may_come_as_a_subprotocol(nats_server: NatsServer) -> None:
    async with (
        gateway(nats_server.url) as url,
        frontend(url, auth=False, subprotocols=["tieline.v1", f"bearer.{token()}"]) as front,
    ):
        await front.until(lambda: front.frames)
        again = await front.ask("auth", {"token": token()})

    assert front.socket.subprotocol == "tieline.v1"
    assert front.frames[0]["payload"]["user_id"] == "ada"
    assert again["type"] == "response"


async def test_a_bad_token_as_a_subprotocol_closes_the_socket_for_good(nats_server: NatsServer) -> None:
    async with (
        gateway(nats_server.url) as url,
        frontend(url, auth=False, subprotocols=["tieline.v1", "bearer.nonsense"]) as front,
    ):
        code, _ = await closed(front)

    assert 4500 <= code <= 4999


async def test_nothing_is_done_for_somebody_who_has_not_said_who(nats_server: NatsServer) -> None:
    async with (
        owning(nats_server.url) as owner,
        gateway(nats_server.url) as url,
        frontend(url, auth=False) as front,
    ):
        told = await front.ask("agent.prompt", {"session_id": "s1", "text": "x"})
        entered = await front.ask("auth", {"token": token()})

    assert told["payload"]["code"] == "unauthorized"
    assert entered["type"] == "response"
    assert owner.asked == []


async def test_a_socket_that_says_nothing_is_closed(nats_server: NatsServer) -> None:
    async with gateway(nats_server.url, limits=SOON) as url, frontend(url, auth=False) as front:
        code, reason = await closed(front)

    assert 4000 <= code <= 4499
    assert "retry_after_ms" in reason


@pytest.mark.parametrize(
    "bad",
    [
        "nonsense",
        issue("ada", b"another secret, also thirty-two bytes", 2_000_000_000, 3600),
        issue("ada", SECRET, 1_000_000_000, 60),
        issue("", SECRET, 2_000_000_000, 3600),
        issue("x" * 600, SECRET, 2_000_000_000, 3600),
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEiLCJleHAiOjQwMDAwMDAwMDB9.",
    ],
)
async def test_a_token_that_is_not_ours_or_has_expired_closes_the_socket(
    nats_server: NatsServer, bad: str
) -> None:
    async with gateway(nats_server.url) as url, frontend(url, auth=False) as front:
        told = await front.ask("auth", {"token": bad})
        code, _ = await closed(front)

    assert told["payload"]["code"] == "unauthorized"
    assert 4500 <= code <= 4999


async def test_a_token_that_runs_out_closes_the_socket(nats_server: NatsServer) -> None:
    async with gateway(nats_server.url, limits=SOON) as url, frontend(url, auth=False) as front:
        await front.ask("auth", {"token": token(seconds=1.2)})
        code, _ = await closed(front)

    assert 4500 <= code <= 4999


async def test_a_newer_token_keeps_the_socket_open(nats_server: NatsServer) -> None:
    async with gateway(nats_server.url, limits=SOON) as url, frontend(url, auth=False) as front:
        await front.ask("auth", {"token": token(seconds=1.2)})
        await front.ask("auth", {"token": token(seconds=3600)})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.6):
                await front.socket.wait_closed()
        told = await front.ask("session.unsubscribe", {"session_id": "s1"})

    assert told["type"] == "response"


async def test_a_connection_never_becomes_somebody_elses(nats_server: NatsServer) -> None:
    async with gateway(nats_server.url) as url, frontend(url, "ada") as front:
        told = await front.ask("auth", {"token": token("bob")})
        after = await front.ask("auth", {"token": token("ada")})

    assert told["payload"]["code"] == "unauthorized"
    assert after["payload"]["user_id"] == "ada"


HOSTILE = ["a.b", "a b", "*", ">", "a.>", ".", "a..b", "a\r\nPUB x 0\r\n", "ünï", "$SYS", "x" * 300]


@pytest.mark.parametrize("user", HOSTILE)
async def test_a_strange_user_id_sees_its_own_sessions_only(nats_server: NatsServer, user: str) -> None:
    """B29"""
    async with (
        owning(nats_server.url, "alice", "s1") as owner,
        gateway(nats_server.url) as url,
        frontend(url, user) as front,
        frontend(url, "alice") as alice,
    ):
        watched = await front.ask("session.subscribe", {"session_id": "s1"})
        prompted = await front.ask("agent.prompt", {"session_id": "s1", "text": "x"})
        await alice.ask("session.subscribe", {"session_id": "s1"})
        await owner.agent.emit({"type": "message_chunk", "n": 1})
        await alice.until(lambda: alice.numbers() == [1])

    assert watched["payload"]["code"] == "not_found"
    assert prompted["payload"]["code"] == "not_found"
    assert front.events == []
    assert owner.asked == []


@pytest.mark.parametrize("session", [*HOSTILE, "", "s1\n", None, 7, {}])
async def test_a_strange_session_id_is_refused_at_the_edge(nats_server: NatsServer, session: object) -> None:
    """B29"""
    async with (
        owning(nats_server.url) as owner,
        gateway(nats_server.url) as url,
        frontend(url) as front,
    ):
        watched = await front.ask("session.subscribe", {"session_id": session})
        prompted = await front.ask("agent.prompt", {"session_id": session, "text": "x"})
        after = await front.ask("agent.prompt", {"session_id": "s1", "text": "x"})

    assert watched["payload"]["code"] == "bad_request"
    assert "session_id" in prompted["payload"]["message"]
    assert after["type"] == "response"
    assert len(owner.asked) == 1


async def test_a_change_in_a_users_lists_is_told_to_all_of_the_users_connections(
    nats_server: NatsServer, bus: Bus
) -> None:
    async with (
        gateway(nats_server.url) as url,
        frontend(url) as one,
        frontend(url) as two,
        frontend(url, "bob") as bob,
    ):
        change = Changed(what="session", id="s1", change="added")

        await one.ask("session.get", {"session_id": "s9"})  # the broker has heard all that was said before
        await bus.publish(subjects.changed("ada"), change.encode())
        await one.until(lambda: one.frames[-1]["action"] == "changed")
        await two.until(lambda: two.frames[-1]["action"] == "changed")

    assert one.frames[-1]["type"] == "notification"
    assert one.frames[-1]["payload"] == {"what": "session", "id": "s1", "change": "added"}
    assert [f["action"] for f in bob.frames] == ["auth"]


async def test_who_comes_and_goes_quickly_disturbs_nobody(nats_server: NatsServer) -> None:
    async with gateway(nats_server.url) as url, frontend(url) as front:
        for _ in range(20):
            async with connect(url, proxy=None) as socket:
                await Raw(socket).send(id="1", action="auth", payload={"token": token()})
            assert socket.close_code == 1000
        told = await front.ask("session.unsubscribe", {"session_id": "s1"})

    assert told["type"] == "response"
