"""Requests on their way to whoever owns a session: answered, refused, tried again, never done twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tieline_gateway.config import Limits
from tieline_protocol import subjects
from tieline_protocol.bus import Received
from tieline_protocol.errors import Code, Refused, TielineError
from tieline_protocol.messages import Request

from tests.support.eventually import eventually
from tests.support.gateway import frontend, gateway
from tests.support.nats_server import NatsServer
from tests.support.owner import Owner, owning, serving

S1 = {"session_id": "s1"}
PROMPT = {"session_id": "s1", "text": "x"}
HASTY = Limits(drain_seconds=0.1, patience=0.6)


def waiting(go: asyncio.Event, owner: Owner, action: str) -> None:
    """The owner answers an action when `go` is set."""

    async def wait(request: Request) -> dict[str, Any]:
        await go.wait()
        return {"done": True}

    owner.handlers[action] = wait


async def test_every_command_reaches_its_owner_under_its_name(nats_server: NatsServer) -> None:
    asked: dict[str, dict[str, Any]] = {
        "session.get": {},
        "session.rename": {"title": "t"},
        "agent.initialize": {},
        "agent.session.set_model": {"model_id": "m"},
        "agent.permissions.respond": {"request_id": "r", "pending_id": "p", "option_id": "o"},
        "question.answer": {"question_id": "q", "rejected": True},
        "shell.input": {"data": "ls\n"},
        "shell.resize": {"cols": 80, "rows": 24},
        "shell.buffer": {},
        "workspace.file-tree": {"path": "", "depth": 2},
        "git.commit": {"message": "m"},
        "process.start": {"command": "true"},
        "vscode.status": {},
        "session.close": {},
    }
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        answers = [await front.ask(action, {**S1, **payload}) for action, payload in asked.items()]

    assert [a["type"] for a in answers] == ["response"] * len(asked)
    assert [(action, request.payload) for action, request in owner.asked] == [
        (action, {**S1, **payload}) for action, payload in asked.items()
    ]
    assert {request.user for _, request in owner.asked} == {"ada"}


async def test_a_thousand_single_keys_arrive_in_order(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        for n in range(1_000):
            await front.send(id=f"k{n}", action="shell.input", payload={**S1, "data": str(n)})
        await front.until(lambda: sum(f.get("action") == "shell.input" for f in front.frames) == 1_000)

    assert [request.payload["data"] for _, request in owner.asked] == [str(n) for n in range(1_000)]
    assert [f["id"] for f in front.frames[1:]] == [f"k{n}" for n in range(1_000)]
    assert {f["type"] for f in front.frames} == {"response"}


async def test_keys_typed_while_nobody_is_there_arrive_in_order_once_somebody_is(
    nats_server: NatsServer,
) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        looked: list[Received] = []
        records = subjects.leader_get(subjects.bucket_stream(subjects.BUCKET_SESSIONS))
        await owner.bus.subscribe(records, looked.append)
        await owner.leave()
        for n in range(50):
            await front.send(id=f"k{n}", action="shell.input", payload={**S1, "data": str(n)})
        await eventually(lambda: len(looked) >= 2)
        await owner.serve()
        await front.until(lambda: sum(f.get("action") == "shell.input" for f in front.frames) == 50)

    assert [request.payload["data"] for _, request in owner.asked] == [str(n) for n in range(50)]


async def test_a_slow_command_delays_nobody(nats_server: NatsServer) -> None:
    """B31"""
    async with (
        owning(nats_server.url) as owner,
        gateway(nats_server.url) as url,
        frontend(url) as one,
        frontend(url) as two,
    ):
        go = asyncio.Event()
        waiting(go, owner, "git.push")
        await one.send(id="slow", action="git.push", payload=S1)
        await eventually(lambda: owner.asked)
        same = await one.ask("agent.stderr", S1, timeout=1)
        other = await two.ask("agent.stderr", S1, timeout=1)
        go.set()
        slow = await one.answer_to("slow")

    assert same["type"] == other["type"] == slow["type"] == "response"


async def test_a_refusal_of_the_owner_comes_with_its_code_and_details(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:

        async def refuse(request: Request) -> TielineError:
            return Refused(Code.CONFLICT, "a turn is running", details={"generation": 3})

        owner.handlers["agent.prompt"] = refuse
        told = await front.ask("agent.prompt", PROMPT)

    assert told["type"] == "error"
    assert told["payload"] == {
        "code": "conflict",
        "message": "a turn is running",
        "details": {"generation": 3},
    }


async def test_an_answer_that_is_too_large_says_so(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:

        async def large(request: Request) -> dict[str, Any]:
            return {"content": "x" * 5_000_001}

        owner.handlers["workspace.file-content"] = large
        told = await front.ask("workspace.file-content", {**S1, "path": "a"})
        after = await front.ask("agent.stderr", S1)

    assert told["payload"]["code"] == "too_large"
    assert after["type"] == "response"


async def test_an_answer_goes_to_the_client_byte_for_byte(nats_server: NatsServer) -> None:
    body = '{"lines":["  é\\u0000\\ud83d "],"n":1.50}'
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url:

        async def exact(request: Request) -> bytes:
            return body.encode()

        owner.handlers["agent.stderr"] = exact
        from websockets.asyncio.client import connect

        from tests.support.gateway import token

        async with connect(url, proxy=None, compression=None) as socket:
            await socket.send('{"id":"a","action":"auth","payload":{"token":"' + token() + '"}}')
            await socket.recv()
            await socket.send('{"id":"b","action":"agent.stderr","payload":{"session_id":"s1"}}')
            text = await socket.recv()

    assert text == '{"type":"response","id":"b","action":"agent.stderr","payload":' + body + "}"


async def test_more_requests_than_a_connection_may_have_are_refused_as_busy(nats_server: NatsServer) -> None:
    limits = Limits(drain_seconds=0.1, in_flight=4)
    async with (
        owning(nats_server.url) as owner,
        gateway(nats_server.url, limits=limits) as url,
        frontend(url) as front,
        frontend(url) as other,
    ):
        go = asyncio.Event()
        waiting(go, owner, "git.push")
        for n in range(6):
            await front.send(id=f"p{n}", action="git.push", payload=S1)
        refused = [await front.answer_to(f"p{n}") for n in (4, 5)]
        elsewhere = await other.ask("agent.stderr", S1)
        go.set()
        done = [await front.answer_to(f"p{n}") for n in range(4)]

    assert {f["payload"]["code"] for f in refused} == {"busy"}
    assert elsewhere["type"] == "response"
    assert {f["type"] for f in done} == {"response"}


async def test_work_goes_on_when_the_socket_that_asked_closes(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url:
        await owner.leave()
        async with frontend(url) as front:
            await front.send(id="p", action="agent.prompt", payload=PROMPT)
            await front.ask("session.unsubscribe", S1)
        await owner.serve()
        await eventually(lambda: owner.asked)

    assert owner.asked[0][0] == "agent.prompt"


# Nobody there


async def test_a_session_that_does_not_exist_is_not_found(nats_server: NatsServer) -> None:
    async with owning(nats_server.url), gateway(nats_server.url) as url, frontend(url) as front:
        told = await front.ask("agent.prompt", {"session_id": "s2", "text": "x"})

    assert told["payload"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"state": "closed", "wanted": "closed"}, "closed"),
        ({"state": "failed", "reason": "the daemon is gone"}, "the daemon is gone"),
    ],
)
async def test_a_session_that_has_ended_is_a_conflict_that_says_why(
    nats_server: NatsServer, fields: dict[str, Any], said: str
) -> None:
    async with (
        owning(nats_server.url, open=False) as owner,
        gateway(nats_server.url) as url,
        frontend(url) as front,
    ):
        await owner.record(**fields)
        told = await front.ask("agent.prompt", PROMPT)

    assert told["payload"]["code"] == "conflict"
    assert said in told["payload"]["message"]


async def test_an_ended_session_can_still_be_read_renamed_and_closed(nats_server: NatsServer) -> None:
    async def get(request: Request) -> dict[str, Any]:
        return {"session_id": request.payload["session_id"], "state": "closed"}

    async with (
        owning(nats_server.url, open=False) as owner,
        serving(nats_server.url, "get", get) as asked,
        gateway(nats_server.url) as url,
        frontend(url) as front,
    ):
        await owner.record(state="closed", wanted="closed")
        told = await front.ask("session.get", S1)

    assert told["payload"] == {"session_id": "s1", "state": "closed"}
    assert asked[0].user == "ada"


async def test_a_wanted_session_is_tried_again_until_its_owner_is_there(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await owner.leave()
        await front.send(id="p", action="agent.prompt", payload=PROMPT)
        await front.ask("session.unsubscribe", S1)
        await owner.serve()
        told = await front.answer_to("p")

    assert told["type"] == "response", told
    assert len(owner.asked) == 1


async def test_a_session_whose_owner_stays_away_is_unavailable(nats_server: NatsServer) -> None:
    async with (
        owning(nats_server.url) as owner,
        gateway(nats_server.url, limits=HASTY) as url,
        frontend(url) as front,
    ):
        await owner.leave()
        told = await front.ask("agent.prompt", PROMPT)

    assert told["payload"]["code"] == "unavailable"


async def test_without_any_streams_service_opening_is_unavailable(nats_server: NatsServer) -> None:
    async with gateway(nats_server.url, limits=HASTY) as url, frontend(url) as front:
        told = await front.ask("session.open", {})

    assert told["payload"]["code"] == "unavailable"


# Fate unknown


async def test_a_request_that_the_broker_took_down_with_it_is_sent_again_under_the_same_id(
    nats_server: NatsServer,
) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        go = asyncio.Event()
        waiting(go, owner, "git.commit")
        await front.send(id="c", action="git.commit", payload={**S1, "message": "m"})
        await eventually(lambda: owner.asked)
        await nats_server.restart()
        await eventually(lambda: len(owner.asked) == 2)
        go.set()
        told = await front.answer_to("c")

    first, second = (request for _, request in owner.asked)
    assert first.id == second.id
    assert told["type"] == "response", told


async def test_when_the_session_changed_hands_only_what_may_be_done_twice_is_sent_again(
    nats_server: NatsServer,
) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await front.ask("agent.stderr", S1)
        go = asyncio.Event()
        for action in ("git.commit", "agent.prompt", "git.status"):
            waiting(go, owner, action)
        await front.send(id="c", action="git.commit", payload={**S1, "message": "m"})
        await front.send(id="p", action="agent.prompt", payload=PROMPT)
        await front.send(id="s", action="git.status", payload=S1)
        await eventually(lambda: len(owner.asked) == 4)
        await owner.take()
        await nats_server.restart()
        changed = await front.answer_to("c")
        go.set()
        repeated = [await front.answer_to(id) for id in "ps"]

    assert changed["payload"]["code"] == "unavailable"
    assert [action for action, _ in owner.asked].count("git.commit") == 1
    assert [f["type"] for f in repeated] == ["response", "response"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("action", "endpoint"), [("session.open", "open"), ("session.list", "list")])
async def test_what_a_replica_took_down_with_it_is_asked_of_another_under_the_same_id(
    nats_server: NatsServer, action: str, endpoint: str
) -> None:
    async def dying(request: object) -> dict | None:
        return {"answered": True} if len(asked) > 1 else None

    async with (
        serving(nats_server.url, endpoint, dying) as asked,
        gateway(nats_server.url) as url,
        frontend(url) as front,
    ):
        await front.send(id="o", action=action, payload={})
        told = await front.answer_to("o", timeout=12)

    assert told["payload"] == {"answered": True}
    assert len({request.id for request in asked}) == 1


async def test_while_the_broker_is_away_a_request_waits_for_it(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        await nats_server.stop()
        await front.send(id="p", action="agent.stderr", payload=S1)
        with pytest.raises(TimeoutError):
            await front.answer_to("p", timeout=0.3)
        await nats_server.start()
        told = await front.answer_to("p")

    assert told["type"] == "response", told
    assert owner.asked


async def test_many_keys_under_way_leave_room_for_other_requests(nats_server: NatsServer) -> None:
    async with owning(nats_server.url) as owner, gateway(nats_server.url) as url, frontend(url) as front:
        go = asyncio.Event()
        waiting(go, owner, "shell.input")
        for n in range(500):
            await front.send(id=f"k{n}", action="shell.input", payload={**S1, "data": str(n)})
        told = await front.ask("agent.permissions.list", S1)
        go.set()
        await front.answer_to("k499")

    assert told["type"] == "response", told
