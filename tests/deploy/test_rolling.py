"""B92: each service is told to go while people work, and nobody loses what they do."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.support.deployment import Deployment
from tests.support.eventually import eventually
from tests.support.gateway import Raw
from tests.support.people import joined, permission, turns_end_as_if_nothing_had_been
from tests.support.process import Process
from tests.support.raw_remote import asked, call, ended, register, say

pytestmark = [pytest.mark.timeout(120), pytest.mark.long]

VIEWERS, CALLS, TURNS = 50, 5, 2
_SHORT = {"TIELINE_DRAIN_SECONDS": "2"}
_GRACE = 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Drains are shortened; all else is as rendered."""
    changes = {"gateway": {"TIELINE_GATEWAY_DRAIN_SECONDS": "2"}, "remotes": _SHORT, "agent": _SHORT}
    deployment = Deployment(tmp_path_factory.mktemp("rolling"), changes=changes)
    asyncio.run(deployment.__aenter__())
    yield deployment
    asyncio.run(deployment.__aexit__())


@dataclass
class Busy:
    """People at work: `viewers` watch the sessions, `owner` has calls to answer that `caller` waits for."""

    sessions: list[str]
    viewers: list[Raw]
    owner: Raw
    caller: Raw
    requests: list[str]


@contextlib.asynccontextmanager
async def busy(cluster: Deployment, beside: str) -> AsyncIterator[Busy]:
    """Whoever calls does so by another gateway, whose URL is `beside`."""
    url, token = cluster.gateway_url, cluster.token()
    async with contextlib.AsyncExitStack() as stack:
        caller = await stack.enter_async_context(joined(beside, token))
        owner = await stack.enter_async_context(joined(url, token))
        assert (await register(owner))["type"] == "response"
        requests = [await call(caller, number) for number in range(CALLS)]
        for request in requests:
            await asked(owner, request)
        sessions = []
        for number in range(TURNS):
            answer = await caller.ask("session.open", {"workspace": f"w{number}"}, timeout=60)
            sessions.append(answer["payload"]["session_id"])
            await caller.ask("session.subscribe", {"session_id": sessions[-1], "cursors": {"agent": "start"}})
            prompt = {"session_id": sessions[-1], "text": "say one\nask go on?\nsay two"}
            assert (await caller.ask("agent.prompt", prompt, timeout=20))["type"] == "response"
            await caller.until(lambda session=sessions[-1]: permission(caller, session), 20)  # type: ignore[misc]
        viewers = [await stack.enter_async_context(joined(url, token)) for _ in range(VIEWERS)]
        for number, viewer in enumerate(viewers):
            await viewer.ask("session.subscribe", {"session_id": sessions[number % TURNS]})
        yield Busy(sessions, viewers, owner, caller, requests)
        for session in sessions:
            with contextlib.suppress(TimeoutError):
                await caller.ask("session.close", {"session_id": session}, timeout=20)


async def status(url: str) -> int:
    async with httpx.AsyncClient(trust_env=False, timeout=5) as http:
        try:
            return (await http.get(url)).status_code
        except httpx.TransportError:
            return 0


async def newcomer(url: str) -> int:
    """The answer to somebody who connects now."""
    try:
        async with connect(url, proxy=None):
            return 101
    except InvalidStatus as exc:
        return exc.response.status_code
    except OSError:
        return 0


def after(answers: list[int], while_it_works: int) -> list[int]:
    """The answers from the first other one on: the signal may be heard a moment after it was sent."""
    return list(itertools.dropwhile(lambda one: one == while_it_works, answers))


async def told_to_go(process: Process) -> tuple[list[int], list[int]]:
    """SIGTERM, and again a second later; what its readiness and, of a gateway, its port then answered."""
    process.signal(signal.SIGTERM)
    loop = asyncio.get_running_loop()
    began, again = loop.time(), False
    ready, port = [], []
    while process.code is None:
        ready.append(await status(f"{process.facts['health_url']}/readyz"))
        if "url" in process.facts:
            port.append(await newcomer(process.facts["url"]))
        if not again and loop.time() > began + 1:
            again = True
            process.signal(signal.SIGTERM)
        assert loop.time() < began + _GRACE, process.tail()
        await asyncio.sleep(0.02)
    return ready, port


@pytest.mark.parametrize(
    "service",
    [
        "gateway",
        pytest.param("remotes", marks=pytest.mark.long),
        pytest.param("agent", marks=pytest.mark.long),
        "streams",
    ],
)
async def test_a_service_that_is_told_to_go_harms_nobody(cluster: Deployment, service: str) -> None:
    """B92: 50 sockets, 5 calls under way, 2 turns; SIGTERM, and once more a second later."""
    process = cluster.services[service]
    beside = cluster.process("gateway", name=f"beside-{service}")
    async with beside, busy(cluster, str(beside.facts["url"])) as people:
        ready, port = await told_to_go(process)

        assert process.code == 0, process.tail()
        assert 200 not in after(ready, 200)
        if service == "gateway":
            assert 503 in ready
            assert 503 in port
            assert 101 not in after(port, 101)
            for viewer in [*people.viewers, people.owner]:
                await asyncio.wait_for(viewer.done, 5)
            assert {viewer.socket.close_code for viewer in people.viewers} == {4000}
        else:
            assert {viewer.socket.close_code for viewer in people.viewers} == {None}
        if service in ("gateway", "remotes"):  # nobody could answer, or nobody waits: told, not left open
            for request in people.requests:
                end = await ended(people.caller, request, 15)
                assert end["code"] in ("disconnected", "unavailable")
        else:
            for request in people.requests:
                await say(people.owner, request, result=request)
                assert (await ended(people.caller, request, 15))["result"] == request

        await process.start()
        if service != "gateway":
            request = await eventually(lambda: again(people.caller), 20, 0.2)
            await asked(people.owner, request)
            await say(people.owner, request, result="after")
            assert (await ended(people.caller, request, 15))["result"] == "after"
        await turns_end_as_if_nothing_had_been(people.caller, people.sessions)


async def again(front: Raw) -> str | None:
    """A call that is accepted, once the service is there."""
    payload = {"remotename": "browser", "function": "echo", "args": {"value": 1}}
    answer = await front.ask("remote-call", payload, timeout=15)
    return str(answer["payload"]["requestId"]) if answer["type"] == "response" else None
