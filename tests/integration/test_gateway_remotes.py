"""Remotes through the gateway: the real remotes service, real sockets, frames as a browser writes them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import struct
import time
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from tieline import Call, Client, Remote
from tieline.errors import TielineError
from tieline_gateway.config import Limits
from tieline_protocol import jetstream, jsontext, subjects
from tieline_protocol.bus import Bus

from tests.support.eventually import eventually
from tests.support.gateway import Raw, frontend, gateway, token
from tests.support.nats_server import NatsServer
from tests.support.raw_remote import (
    ECHO,
    asked,
    call,
    echoing,
    ended,
    register,
    remotes,
    say,
    say_text,
    told,
)


@pytest.fixture
async def url(nats_server: NatsServer) -> AsyncIterator[str]:
    """A gateway beside a remotes service."""
    async with remotes(nats_server.url), gateway(nats_server.url) as url:
        yield url


@pytest.fixture
async def owner(url: str) -> AsyncIterator[Raw]:
    """Ada's socket that exposes the remote `browser`."""
    async with frontend(url) as front:
        answer = await register(front)
        assert answer["payload"] == {"remotename": "browser", "functions": ["echo"], "refused": []}
        yield front


@pytest.fixture
async def caller(url: str, owner: Raw) -> AsyncIterator[Raw]:
    """Another socket of hers."""
    async with frontend(url) as front:
        yield front


async def listed(front: Raw) -> list[dict[str, Any]]:
    answer = await front.ask("remote-list")
    found: list[dict[str, Any]] = answer["payload"]["remotes"]
    return found


# A call and its end


async def test_a_function_is_called_and_its_result_comes_as_a_notification(owner: Raw, caller: Raw) -> None:
    id = await call(caller, "hello", timeout_ms=5_000)
    heard = await asked(owner, id)
    await say(owner, id, result={"said": "hello"})

    assert await ended(caller, id) == {"requestId": id, "result": {"said": "hello"}}
    assert 4_000 < heard.pop("deadline_ms") <= 5_000
    assert heard == {"requestId": id, "remotename": "browser", "function": "echo", "args": {"value": "hello"}}


@pytest.mark.parametrize(
    "text",
    ["0", '""', "[]", "null", "false", "{}", "1.50", "12345678901234567890123", '"ünï😀"', '"\\u00fc"', "-0"],
)
async def test_a_result_arrives_as_it_is_written(owner: Raw, caller: Raw, text: str) -> None:
    """B62"""
    texts: list[str] = []
    id = await call(caller)
    await asked(owner, id)
    await say_text(owner, id, text)
    end = await ended(caller, id)

    assert end["result"] == orjson.loads(text)
    assert "error" not in end
    assert not texts


@pytest.mark.parametrize(
    ("outcome", "error", "code"),
    [
        ({"error": "no such tab"}, "no such tab", "internal"),
        ({"error": "full", "code": "busy", "result": 1}, "full", "busy"),
        ({}, "neither", "internal"),
    ],
)
async def test_an_error_reaches_the_caller(
    owner: Raw, caller: Raw, outcome: dict[str, Any], error: str, code: str
) -> None:
    """B62: both: the error wins; neither: an error."""
    id = await call(caller)
    await asked(owner, id)
    await say(owner, id, **outcome)
    end = await ended(caller, id)

    assert error in end["error"]
    assert end["code"] == code
    assert "result" not in end


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"remotename": "nothing", "function": "echo", "args": {}}, "not_found"),
        ({"remotename": "browser", "function": "nope", "args": {}}, "not_found"),
        ({"remotename": "browser", "function": "echo", "args": {}}, "invalid_arguments"),
    ],
)
async def test_what_cannot_be_called_is_refused_at_once(
    owner: Raw, caller: Raw, payload: dict[str, Any], code: str
) -> None:
    began = time.monotonic()
    answer = await caller.ask("remote-call", payload)

    assert (answer["type"], answer["payload"]["code"]) == ("error", code)
    assert time.monotonic() - began < 1
    assert told(owner, "remote-call") == []


async def test_a_call_whose_time_is_up_ends_and_is_cancelled_at_its_owner(owner: Raw, caller: Raw) -> None:
    """B04"""
    id = await call(caller, timeout_ms=200)
    await asked(owner, id)
    end = await ended(caller, id)
    await owner.until(lambda: told(owner, "remote-call-cancel"))
    second = await call(caller, 2)
    await asked(owner, second)
    late = await owner.ask("remote-call-result", {"requestId": id, "result": "late"})
    await say(owner, second, result="second")

    assert end["code"] == "timeout"
    assert late["payload"]["code"] == "not_found"
    assert (await ended(caller, second))["result"] == "second"
    assert len(told(caller, "remote-call-result")) == 2


async def test_the_first_of_two_results_counts(owner: Raw, caller: Raw) -> None:
    """B04"""
    id = await call(caller)
    await asked(owner, id)
    first = asyncio.create_task(owner.ask("remote-call-result", {"requestId": id, "result": 1}))
    second = asyncio.create_task(owner.ask("remote-call-result", {"requestId": id, "result": 2}))

    assert (await first)["payload"] == {}
    assert (await second)["payload"]["code"] == "not_found"
    assert (await ended(caller, id))["result"] == 1


async def test_a_caller_cancels_and_the_owner_hears_it_at_once(owner: Raw, caller: Raw) -> None:
    id = await call(caller)
    await asked(owner, id)
    began = time.monotonic()
    answer = await caller.ask("remote-call-cancel", {"requestId": id})
    [cancel] = await owner.until(lambda: told(owner, "remote-call-cancel"))

    assert time.monotonic() - began < 1
    assert answer["payload"] == {}
    assert cancel == {"requestId": id, "reason": "cancelled"}
    assert (await ended(caller, id))["code"] == "cancelled"
    again = await caller.ask("remote-call-cancel", {"requestId": id})
    assert again["payload"]["code"] == "not_found"


async def test_progress_reaches_the_caller_before_the_result(owner: Raw, caller: Raw) -> None:
    id = await call(caller)
    await asked(owner, id)
    for step in (1, 2):
        payload = {"requestId": id, "message": "working", "progress": step, "total": 2.5, "more": "x"}
        await owner.send(type="notification", action="remote-call-progress", payload=payload)
    await say(owner, id, result="done")
    await ended(caller, id)

    assert told(caller, "remote-call-progress") == [
        {"requestId": id, "message": "working", "progress": step, "total": 2.5} for step in (1, 2)
    ]
    late = await owner.ask("remote-call-progress", {"requestId": id})
    assert late["payload"]["code"] == "not_found"


async def test_a_call_goes_on_when_its_callers_socket_closes(url: str, owner: Raw) -> None:
    async with frontend(url) as gone:
        id = await call(gone)
        await asked(owner, id)
    answer = await owner.ask("remote-call-result", {"requestId": id, "result": 1})

    assert answer["payload"] == {}
    assert told(owner, "remote-call-cancel") == []


async def test_the_trace_goes_along_to_the_owner(owner: Raw, caller: Raw) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    payload = {"remotename": "browser", "function": "echo", "args": {"value": 1}}
    await caller.send(id="t", action="remote-call", payload=payload, metadata={"traceparent": trace})
    await caller.answer_to("t")
    frame = await owner.until(
        lambda: next((f for f in owner.frames if f.get("action") == "remote-call"), None)
    )

    assert frame["metadata"] == {"traceparent": trace}


async def test_ten_calls_of_one_remote_run_side_by_side(owner: Raw, caller: Raw) -> None:
    """B31"""
    ids = [await call(caller, number) for number in range(10)]
    for id in ids:
        await asked(owner, id)
    for id in reversed(ids):
        await say(owner, id, result=id)

    assert [(await ended(caller, id))["result"] for id in ids] == ids


async def test_how_soon_calls_end(url: str, owner: Raw, caller: Raw) -> None:
    """The best of a few tries, since others use the machine too: nobody there, cancelled, ten calls of 200 ms."""
    browser = Remote("side")

    @browser.function
    async def slow(number: int) -> int:
        "Takes 200 ms."
        await asyncio.sleep(0.2)
        return number

    async def nobody() -> None:
        payload = {"remotename": "nothing", "function": "echo", "args": {}}
        assert (await caller.ask("remote-call", payload))["payload"]["code"] == "not_found"

    async def cancelled() -> None:
        await caller.send(type="notification", action="remote-call-cancel", payload={"requestId": id})
        await owner.until(
            lambda: [one for one in told(owner, "remote-call-cancel") if one["requestId"] == id]
        )

    async def ten() -> None:
        calls = (script.call("side", "slow", {"number": number}) for number in range(10))
        assert await asyncio.gather(*calls) == list(range(10))

    async def took(work: Any) -> float:
        began = time.monotonic()
        await work
        return time.monotonic() - began

    absent = min([await took(nobody()) for _ in range(9)])
    gone = []
    for number in range(9):
        id = await call(caller, number)
        await asked(owner, id)
        gone.append(await took(cancelled()))
    async with Client(url, token()) as script, script.serve(browser):
        side_by_side = min([await took(ten()) for _ in range(4)])

    figures = {"not_found": absent, "cancelled": min(gone), "ten_calls_of_200_ms": side_by_side}
    print({name: f"{1000 * seconds:.1f} ms" for name, seconds in figures.items()})
    assert absent <= 0.05
    assert min(gone) <= 0.1
    assert side_by_side <= 0.3


async def test_a_stuck_remote_delays_nobody_else(url: str, owner: Raw, caller: Raw) -> None:
    """B31"""
    await call(caller)
    async with frontend(url, "bob") as tool, frontend(url, "bob") as bob, echoing(tool):
        await register(tool, "tool")
        began = time.monotonic()
        id = await call(bob, "quick", "tool")

        assert (await ended(bob, id))["result"] == "quick"
        assert [one["remotename"] for one in await listed(bob)] == ["tool"]
        assert time.monotonic() - began < 1


@pytest.mark.timeout(60)
async def test_hundreds_of_calls_at_once_all_end_while_memory_is_collected(owner: Raw, caller: Raw) -> None:
    """B18"""

    async def collect() -> None:
        while True:
            gc.collect()
            await asyncio.sleep(0.01)

    gc.freeze()  # what other tests left behind would take all the time
    collecting = asyncio.create_task(collect(), name="collector")
    results = []
    async with echoing(owner):
        for start in range(0, 500, 50):
            ids = await asyncio.gather(*(call(caller, number) for number in range(start, start + 50)))
            results += [(await ended(caller, id))["result"] for id in ids]
    collecting.cancel()
    await asyncio.wait([collecting])
    gc.unfreeze()

    assert results == list(range(500))


# Whose call it is


async def test_only_the_asked_connection_can_answer(url: str, owner: Raw, caller: Raw) -> None:
    """B01"""
    id = await call(caller)
    await asked(owner, id)
    async with frontend(url, "eve") as eve:
        forged = await eve.ask("remote-call-result", {"requestId": id, "result": "PWNED"})
        await say(eve, id, result="PWNED")
        random = await eve.ask("remote-call-result", {"requestId": "nothing-1", "result": "PWNED"})
        cancelled = await eve.ask("remote-call-cancel", {"requestId": id})
        progress = await eve.ask("remote-call-progress", {"requestId": id, "message": "PWNED"})
    sibling = await caller.ask("remote-call-result", {"requestId": id, "result": "PWNED2"})
    await say(owner, id, result="real")

    for refused in (forged, random, cancelled, progress, sibling):
        assert refused["payload"] == {"code": "not_found", "message": forged["payload"]["message"]}
    assert (await ended(caller, id))["result"] == "real"
    assert told(caller, "remote-call-progress") == []


async def test_two_users_with_the_same_frame_id_each_get_their_own_answer(
    url: str, owner: Raw, caller: Raw
) -> None:
    """B03"""
    async with frontend(url, "bob") as tool, frontend(url, "bob") as bob:
        await register(tool)
        payload = {"remotename": "browser", "function": "echo", "args": {"value": 1}}
        for front in (caller, bob):
            await front.send(id="1", action="remote-call", payload=payload)
        ada_id, bob_id = [(await front.answer_to("1"))["payload"]["requestId"] for front in (caller, bob)]
        await asked(tool, bob_id)
        await asked(owner, ada_id)
        await say(tool, bob_id, result="bob's")
        await say(owner, ada_id, result="ada's")

        assert (await ended(bob, bob_id))["result"] == "bob's"
        assert (await ended(caller, ada_id))["result"] == "ada's"


async def test_a_frame_id_is_free_again_once_the_call_has_its_own(owner: Raw, caller: Raw) -> None:
    """B03"""
    payload = {"remotename": "browser", "function": "echo", "args": {"value": 1}}
    await caller.send(id="1", action="remote-call", payload=payload)
    await caller.send(id="1", action="remote-list", payload={})
    kinds = await caller.until(
        lambda: k if len(k := [f["type"] for f in caller.frames if f.get("id") == "1"]) == 2 else None
    )
    await caller.send(id="1", action="remote-call", payload=payload)
    await owner.until(lambda: len(told(owner, "remote-call")) == 2)

    assert sorted(kinds) == ["error", "response"]


# Registrations


async def test_functions_are_checked_one_by_one(owner: Raw) -> None:
    answer = await register(owner, "mixed", [ECHO, {"name": "bad", "parameters": []}, 7])

    assert answer["payload"]["functions"] == ["echo"]
    assert [one["pointer"] for one in answer["payload"]["refused"]] == ["/1/parameters", "/2"]


async def test_a_list_says_what_is_mine(owner: Raw, caller: Raw) -> None:
    [own], [other] = await listed(owner), await listed(caller)

    assert own["mine"]
    assert not other["mine"]
    assert own["functions"] == [ECHO]
    assert own["external"] is None
    assert abs(own["connected_at"] - time.time() * 1000) < 10_000


async def test_a_remote_that_disconnects_is_gone(owner: Raw, caller: Raw) -> None:
    assert (await owner.ask("remote-disconnect", {"remotename": "browser"}))["payload"] == {}

    assert await listed(caller) == []
    refused = await caller.ask(
        "remote-call", {"remotename": "browser", "function": "echo", "args": {"value": 1}}
    )
    assert refused["payload"]["code"] == "not_found"
    again = await owner.ask("remote-disconnect", {"remotename": "browser"})
    assert again["payload"]["code"] == "not_found"


async def test_every_connection_of_the_user_hears_what_changes(owner: Raw, caller: Raw) -> None:
    await register(owner, "other")
    await register(owner, "other")
    await owner.ask("remote-disconnect", {"remotename": "other"})
    changes = await caller.until(
        lambda: c if len(c := [c for c in told(caller, "changed") if c["id"] == "other"]) == 3 else None
    )

    assert [(c["what"], c["change"]) for c in changes] == [
        ("remote", "added"),
        ("remote", "updated"),
        ("remote", "removed"),
    ]


async def test_the_last_registration_wins_and_the_loser_is_told(url: str, owner: Raw, caller: Raw) -> None:
    """B06: whatever the loser says afterwards changes nothing."""
    pending = await call(caller)
    await asked(owner, pending)
    async with frontend(url) as heir, echoing(heir):
        await register(heir)
        [lost] = await owner.until(lambda: told(owner, "remote-replaced"))
        refused = await owner.ask("remote-disconnect", {"remotename": "browser"})
        await say(owner, "nothing-7", result="late")
        await owner.socket.close()
        id = await call(caller, "heir")

        assert lost == {"remotename": "browser"}
        assert refused["payload"]["code"] == "not_found"
        assert (await ended(caller, id))["result"] == "heir"
        assert (await ended(caller, pending))["code"] == "disconnected"
        assert told(heir, "remote-replaced") == []
        assert [one["mine"] for one in await listed(heir)] == [True]


async def test_who_registers_again_on_the_same_connection_is_not_replaced(owner: Raw, caller: Raw) -> None:
    for _ in range(5):
        await register(owner)
    async with echoing(owner):
        id = await call(caller, "still")
        assert (await ended(caller, id))["result"] == "still"

    assert told(owner, "remote-replaced") == []


@pytest.mark.timeout(20)
async def test_two_who_fight_for_a_name_come_to_rest(nats_server: NatsServer, url: str) -> None:
    """B06: on two gateways; one has it in the end, and the other knows."""
    async with gateway(nats_server.url) as other, frontend(url) as one, frontend(other) as two:
        await asyncio.gather(*(register(front) for front in (one, two) for _ in range(20)))

        def losers() -> bool:
            return bool(told(one, "remote-replaced")) or bool(told(two, "remote-replaced"))

        await one.until(lambda: True)
        await eventually(losers)
        has = [[r["mine"] for r in await listed(front)] for front in (one, two)]
        winner = one if has == [[True], [False]] else two
        async with echoing(winner), frontend(url) as caller:
            id = await call(caller, "x")
            assert (await ended(caller, id))["result"] == "x"

    assert sorted(has) == [[False], [True]]


async def test_a_call_that_was_meant_for_an_older_registration_does_not_run(
    bus: Bus, url: str, owner: Raw
) -> None:
    [record] = [jsontext.loads(entry.value) for entry in await jetstream_entries(bus)]
    body = {
        "id": "1",
        "user": "ada",
        "budget_ms": 1000,
        "payload": {
            "requestId": "r1-1",
            "remotename": "browser",
            "function": "echo",
            "args": {},
            "registration": "old",
        },
    }
    subject = subjects.connection(record["gateway"], record["connection"], "remote-call")
    refused = orjson.loads((await bus.request(subject, orjson.dumps(body), 2)).data)
    body["user"] = "eve"
    foreign = orjson.loads((await bus.request(subject, orjson.dumps(body), 2)).data)
    gone = orjson.loads(
        (
            await bus.request(
                subjects.connection(record["gateway"], "gone", "remote-call"), orjson.dumps(body), 2
            )
        ).data
    )

    assert refused["error"]["code"] == "conflict"
    assert foreign["error"]["code"] == "not_found"
    assert gone["error"]["code"] == "not_found"
    assert told(owner, "remote-call") == []


async def jetstream_entries(bus: Bus) -> list[jetstream.Entry]:
    return await jetstream.Bucket(bus, subjects.BUCKET_REMOTES).entries("*.*")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"7", b"{}", b'{"payload":7}', b'{"requestId":[]}', b"\xff", b"[" * 5000]
)
async def test_garbage_on_internal_subjects_hurts_nobody(
    bus: Bus, owner: Raw, caller: Raw, body: bytes
) -> None:
    """B15"""
    [record] = [jsontext.loads(entry.value) for entry in await jetstream_entries(bus)]
    for verb in ("remote-call", "remote-call-cancel", "nonsense"):
        subject = subjects.connection(record["gateway"], record["connection"], verb)
        answer = orjson.loads((await bus.request(subject, body, 2)).data)
        assert answer["error"]["code"] == "bad_request"
    await bus.publish(subjects.bucket_key(subjects.BUCKET_REMOTES, "u_x.y"), body)
    await bus.publish(subjects.changed("ada"), body)

    async with echoing(owner):
        id = await call(caller, "works")
        assert (await ended(caller, id))["result"] == "works"


@pytest.mark.parametrize(
    "name", ["a.b", "a b", "*", ">", "a.>", ".", "a..b", "ünï", "$SYS", "x" * 128, "😀", "__proto__"]
)
async def test_any_name_is_one_remote(owner: Raw, caller: Raw, name: str) -> None:
    """B29"""
    await register(owner, name)
    async with echoing(owner):
        id = await call(caller, name, name)
        assert (await ended(caller, id))["result"] == name

    assert sorted(one["remotename"] for one in await listed(caller)) == sorted(["browser", name])


@pytest.mark.parametrize("name", ["", "x" * 300, "a\r\nPUB x 0\r\n", 7, None])
async def test_what_cannot_be_a_name_is_refused(owner: Raw, name: Any) -> None:
    """B29"""
    answer = await owner.ask("remote-connect", {"remotename": name, "functions": []})

    assert answer["payload"]["code"] == "bad_request"
    assert len(await listed(owner)) == 1


@pytest.mark.parametrize("user", ["a.b", "a b", "*", ">", "a.>", ".", "ünï", "$SYS", "x" * 300])
async def test_users_with_odd_names_never_meet(url: str, owner: Raw, user: str) -> None:
    """B29"""
    async with frontend(url, user) as odd, frontend(url, user) as odd_caller, echoing(odd):
        await register(odd, "b.c")
        id = await call(odd_caller, "own", "b.c")

        assert (await ended(odd_caller, id))["result"] == "own"
        assert [one["remotename"] for one in await listed(odd_caller)] == ["b.c"]
        refused = await odd.ask(
            "remote-call", {"remotename": "browser", "function": "echo", "args": {"value": 1}}
        )
        assert refused["payload"]["code"] == "not_found"
    assert [one["remotename"] for one in await listed(owner)] == ["browser"]


# Mistakes


@pytest.mark.parametrize(
    ("action", "payload", "named"),
    [
        ("remote-call", {"remotename": "browser", "function": "echo", "args": '{"a":1}'}, "args"),
        ("remote-call", {"remotename": "browser", "function": "echo", "args": [1]}, "args"),
        ("remote-call", {"remotename": "browser", "function": "echo", "args": None}, "args"),
        ("remote-call", {"remotename": "browser", "function": "echo"}, "args"),
        ("remote-call", {"remotename": "browser", "function": 7, "args": {}}, "function"),
        (
            "remote-call",
            {"remotename": "browser", "function": "echo", "args": {}, "timeout_ms": 0},
            "timeout_ms",
        ),
        ("remote-connect", {"remotename": "x", "functions": {}}, "functions"),
        ("remote-connect", {"remotename": "x"}, "functions"),
        (
            "remote-connect",
            {"remotename": "x", "functions": [], "external": {"kind": "ftp", "url": "x"}},
            "external",
        ),
        ("remote-call-result", {"requestId": 7, "result": 1}, "requestId"),
        ("remote-call-result", {"requestId": {}, "result": 1}, "requestId"),
        ("remote-call-result", {"requestId": "", "result": 1}, "requestId"),
        ("remote-call-result", {"requestId": "x" * 10_000, "result": 1}, "requestId"),
        ("remote-call-result", {"result": 1}, "requestId"),
        ("remote-call-cancel", {}, "requestId"),
        ("remote-call-progress", {"requestId": "r-1", "progress": "half"}, "progress"),
        ("remote-disconnect", {}, "remotename"),
    ],
)
async def test_a_mistake_is_answered_with_its_name_and_the_next_frame_works(
    owner: Raw, action: str, payload: dict[str, Any], named: str
) -> None:
    """B15"""
    answer = await owner.ask(action, payload)
    await owner.send(type="notification", action=action, payload=payload)

    assert answer["payload"]["code"] == "bad_request"
    assert named in answer["payload"]["message"]
    assert len(await listed(owner)) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('"ok \\ud83d end"', "surrogate"),
        ('{"x":NaN,"y":-Infinity}', "not valid JSON"),
        ("1e400", "not valid JSON"),
        ("[" * 1_000 + "]" * 1_000, "nested too deeply"),
        ("[" * 500 + "]" * 500, "nested too deeply"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ('"cut', "not valid JSON"),
    ],
)
async def test_a_result_that_others_could_not_read_ends_that_call_alone(
    owner: Raw, caller: Raw, text: str, reason: str
) -> None:
    """B20 B21 B22"""
    other, id = await call(caller, 1), await call(caller, 2)
    await asked(owner, id)
    await say_text(owner, id, text)
    end = await ended(caller, id)
    await asked(owner, other)
    await say(owner, other, result="fine")

    assert reason in end["error"]
    assert (await ended(caller, other))["result"] == "fine"
    for frame in caller.frames:
        json.loads(json.dumps(frame, allow_nan=False))


async def test_a_result_in_a_frame_that_is_none_ends_that_call_alone(owner: Raw, caller: Raw) -> None:
    """B20: the fields beside the action instead of in the payload."""
    id = await call(caller)
    await asked(owner, id)
    await owner.socket.send(f'{{"action":"remote-call-result","requestId":"{id}","result":"ok \\ud83d end"}}')

    assert "id: missing" in (await ended(caller, id))["error"]
    assert (await owner.until(lambda: [f for f in owner.frames if f["type"] == "error"]))[0]["id"] is None


@pytest.mark.parametrize("half", ["remotename", "function", "args"])
async def test_half_an_emoji_in_a_call_hurts_nobody(owner: Raw, caller: Raw, half: str) -> None:
    """B20"""
    payload = {"remotename": "browser", "function": "echo", "args": {"value": 1}}
    broken: Any = "\ud83d" if half != "args" else {"value": "\ud83d"}
    text = json.dumps({"id": "h", "action": "remote-call", "payload": {**payload, half: broken}})
    await caller.socket.send(text)
    answer = await caller.answer_to("h")

    if half != "args":
        assert answer["payload"]["code"] == "not_found"
        return
    id = answer["payload"]["requestId"]
    assert (await asked(owner, id))["args"] == {"value": "\ufffd"}
    await say(owner, id, result="ok")
    assert (await ended(caller, id))["result"] == "ok"


# Sizes


@pytest.mark.parametrize(
    "value",
    ["x" * 1_048_577, "x" * 3_000_000, "€" * 400_000, "x" * 4_999_998],
    ids=["1M", "3M", "euro", "5M"],
)
async def test_a_large_result_arrives_whole(url: str, owner: Raw, caller: Raw, value: str) -> None:
    """B24 B26"""
    async with frontend(url, "bob") as tool, frontend(url, "bob") as bob, echoing(tool):
        await register(tool)
        id = await call(caller)
        await asked(owner, id)
        await say(owner, id, result=value)
        other = await call(bob, "meanwhile")

        assert (await ended(bob, other, 1))["result"] == "meanwhile"
        assert (await ended(caller, id))["result"] == value


async def test_a_result_above_the_limit_is_too_large_for_that_call_alone(owner: Raw, caller: Raw) -> None:
    """B24"""
    id = await call(caller)
    await asked(owner, id)
    await say(owner, id, result="x" * 5_000_000)
    end = await ended(caller, id)
    next_id = await call(caller)
    await asked(owner, next_id)
    await say(owner, next_id, result="fits")

    assert end["code"] == "too_large"
    assert end["error"] == "the result has 5,000,002 bytes, at most 5,000,000 are passed on"
    assert (await ended(caller, next_id))["result"] == "fits"


async def test_a_frame_above_the_limit_closes_the_socket_and_ends_its_calls(
    url: str, owner: Raw, caller: Raw
) -> None:
    """B26: who sent it can come back and register again."""
    async with frontend(url) as big:
        await register(big, "big")
        id = await call(caller, name="big")
        await asked(big, id)
        # The head of the frame is enough; a client that goes on writing hears of the close only sometimes.
        big.socket.transport.write(
            struct.pack(">BBQ", 0x81, 0x80 | 127, 7 * 1024 * 1024 + 1) + bytes(4) + b"{"
        )
        end = await ended(caller, id, 2)
        await big.socket.wait_closed()

    assert big.socket.close_code == 1009
    assert end["code"] == "disconnected"
    async with frontend(url) as back, echoing(back):
        await register(back, "big")
        id = await call(caller, "again", "big")
        assert (await ended(caller, id))["result"] == "again"


async def test_calls_in_flight_are_bounded_for_caller_and_owner(nats_server: NatsServer) -> None:
    limits = Limits(calls=3, drain_seconds=0.1)
    async with (
        remotes(nats_server.url),
        gateway(nats_server.url, limits=limits) as url,
        frontend(url) as owner,
        frontend(url) as caller,
        frontend(url) as other,
    ):
        await register(owner)
        ids = [await call(caller, number) for number in range(3)]
        payload = {"remotename": "browser", "function": "echo", "args": {"value": 1}}
        refused = await caller.ask("remote-call", payload)
        over = await call(other, 4)

        assert refused["payload"]["code"] == "busy"
        assert (await ended(other, over))["code"] == "busy"
        await asked(owner, ids[0])
        await say(owner, ids[0], result=0)
        await ended(caller, ids[0])
        await call(caller, 5)


async def test_an_owner_that_reads_nothing_is_closed_and_its_calls_end(nats_server: NatsServer) -> None:
    limits = Limits(control=256 * 1024, drain_seconds=0.1)
    async with (
        remotes(nats_server.url),
        gateway(nats_server.url, limits=limits) as url,
        frontend(url) as owner,
        frontend(url) as caller,
    ):
        await register(owner)
        owner.socket.transport.pause_reading()
        payload = {"remotename": "browser", "function": "echo", "args": {"value": "x" * 300_000}}
        for number in range(8):
            await caller.send(id=number, action="remote-call", payload=payload)
        answers = [(await caller.answer_to(number))["payload"] for number in range(8)]
        ends = [await ended(caller, one["requestId"], 2) for one in answers if "requestId" in one]
        owner.socket.transport.resume_reading()
        await owner.done

        assert ends
        assert {end["code"] for end in ends} == {"disconnected"}
        assert owner.socket.close_code == 4002
        assert await listed(caller) == []


# The end of a socket


@pytest.mark.parametrize("how", ["1000", "1001", "reset"])
async def test_a_socket_that_closes_ends_its_calls_and_its_remotes(
    url: str, how: str, caller: Raw, owner: Raw
) -> None:
    """B05"""
    await register(owner, "second")
    ids = [await call(caller, number, name) for number in range(3) for name in ("browser", "second")]
    for id in ids:
        await asked(owner, id)
    began = time.monotonic()
    if how == "reset":
        owner.socket.transport.abort()
    else:
        await owner.socket.close(int(how))
    ends = [await ended(caller, id, 1) for id in ids]

    assert time.monotonic() - began < 1
    assert {end["code"] for end in ends} == {"disconnected"}

    async def gone() -> bool:
        return await listed(caller) == []

    await eventually(gone)


async def test_a_socket_that_closes_while_it_registers_leaves_nothing_behind(url: str, caller: Raw) -> None:
    """B06"""
    async with frontend(url) as short:
        for number in range(20):
            payload = {"remotename": f"short {number}", "functions": [ECHO]}
            await short.send(id=f"c{number}", action="remote-connect", payload=payload)
        short.socket.transport.abort()

    async def gone() -> bool:
        return [one["remotename"] for one in await listed(caller)] == ["browser"]

    await eventually(gone, 8)


# The SDK


async def test_a_script_calls_a_function_of_another_script(url: str) -> None:
    browser = Remote("browser")

    @browser.function
    async def add(a: int, b: int, call: Call) -> int:
        "Add two numbers."
        await call.progress("adding", 1, 2)
        return a + b

    @browser.function
    def broken() -> float:
        "Gives what JSON cannot tell."
        return float("nan")

    heard: list[dict[str, Any]] = []
    async with Client(url, token()) as owner, Client(url, token()) as caller, owner.serve(browser) as served:
        assert served.functions == ["add", "broken"]
        assert await caller.call("browser", "add", {"a": 1, "b": 2}, on_progress=heard.append) == 3
        with pytest.raises(TielineError, match="NaN"):
            await caller.call("browser", "broken")
        with pytest.raises(TielineError) as caught:
            await caller.call("browser", "add", {"a": 1})

    assert [one["message"] for one in heard] == ["adding"]
    assert caught.value.code == "invalid_arguments"


async def test_a_script_that_gives_up_cancels_the_function(url: str) -> None:
    slow, stopped = Remote("slow"), asyncio.Event()
    running = asyncio.Event()

    @slow.function
    async def wait() -> None:
        "Never ends by itself."
        running.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            stopped.set()

    async with Client(url, token()) as owner, Client(url, token()) as caller, owner.serve(slow):
        task = asyncio.create_task(caller.call("slow", "wait"))
        await asyncio.wait_for(running.wait(), 5)
        task.cancel()
        await asyncio.wait_for(stopped.wait(), 1)
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_script_that_gives_up_before_its_call_has_an_id_cancels_it_too(url: str) -> None:
    """However far the call has come by then: whatever runs is stopped."""
    slow = Remote("slow")
    begun: list[int] = []
    stopped: list[int] = []

    @slow.function
    async def wait(turns: int) -> None:
        "Never ends by itself."
        begun.append(turns)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            stopped.append(turns)

    async with Client(url, token()) as owner, Client(url, token()) as caller, owner.serve(slow):
        for turns in range(1, 20):
            task = asyncio.create_task(caller.call("slow", "wait", {"turns": turns}))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        last = asyncio.create_task(caller.call("slow", "wait", {"turns": 0}))
        await eventually(lambda: 0 in begun)
        await eventually(lambda: len(stopped) == len(begun) - 1)
        last.cancel()
        await asyncio.wait([last])

    assert len(begun) > 1


async def test_a_script_whose_remote_is_taken_over_knows_it(url: str) -> None:
    """B06"""
    one, two = Remote("same"), Remote("same")

    async def who(answer: str = "one") -> str:
        "Tell who serves."
        return answer

    async def other(answer: str = "two") -> str:
        "Tell who serves."
        return answer

    one.function(who)
    two.function(other, name="who")

    async with Client(url, token()) as a, Client(url, token()) as b, a.serve(one) as served:
        assert await b.call("same", "who") == "one"
        async with b.serve(two):
            await asyncio.wait_for(served.replaced.wait(), 5)
            assert await a.call("same", "who") == "two"
