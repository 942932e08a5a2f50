"""kill -9 of each service in each phase of a coding agent's turn: one end for each turn, no prompt run twice, the
permission still there, and whoever watches has all of it. Real services, daemon, agent and client, each a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tieline import TielineError

from tests.support.eventually import eventually
from tests.support.frontend import Frontend
from tests.support.oracle import agree, in_order, of_one_text, one_end_each, pieces
from tests.support.stack import Stack
from tests.support.watching import seen

pytestmark = pytest.mark.timeout(90)

PHASES = ("before it is accepted", "once it is accepted", "in the text", "while it asks", "after its end")
SHORT = {
    "streams": "while it asks",
    "gateway": "in the text",
    "remotes": "once it is accepted",
    "agent": "after its end",
    "daemon": "in the text",
}
TURN = "wait 0.5\nsay one \nwait 0.7\nsay two \nrun echo ran >> ran.txt\nsay three \nwait 0.4\nsay four "
SAID = "one two three four "
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One for all tests here: each brings back what it killed."""
    made = Stack(tmp_path_factory.mktemp("stack"))
    asyncio.run(made.__aenter__())
    yield made
    asyncio.run(made.__aexit__())


def phases(service: str) -> list[Any]:
    """All of them; all but one in the long run only."""
    return [
        pytest.param(phase, marks=[] if SHORT[service] == phase else pytest.mark.long) for phase in PHASES
    ]


def cases(*services: str) -> list[Any]:
    return [
        pytest.param(service, *phase.values, marks=phase.marks)
        for service in services
        for phase in phases(service)
    ]


async def insist(front: Frontend, action: str, session: str, **payload: Any) -> dict[str, Any]:
    """As a user's page does: what was lost on the way is asked again."""

    async def once() -> dict[str, Any] | None:
        try:
            return {"told": await front.ask(action, session, **payload)}
        except TielineError as exc:
            if exc.code in ("disconnected", "unavailable", "timeout"):
                return None
            raise

    told: dict[str, Any] = (await eventually(once, 40, 0.1))["told"]
    return told


class Turn:
    """One turn of one session, and a user who watches it and answers."""

    def __init__(self, stack: Stack, front: Frontend, session: str) -> None:
        self.stack = stack
        self.front = front
        self.session = session
        self.workspace = stack.workspaces / session

    async def prompt(self) -> dict[str, Any]:
        return await insist(self.front, "agent.prompt", self.session, text=TURN, client_message_id="m1")

    async def permission(self) -> dict[str, Any]:
        """What the screen shows as waiting for an answer."""

        def shown() -> list[dict[str, Any]]:
            sets = self.front.of("permissions")
            return sets[-1].body["open"] if sets else []

        open: list[dict[str, Any]] = await self.front.wait(shown, 40, "a permission")
        return open[0]

    async def listed(self) -> list[dict[str, Any]]:
        told = await insist(self.front, "agent.permissions.list", self.session)
        open: list[dict[str, Any]] = told["permissions"]
        return open

    async def allow(self) -> None:
        asked = await self.permission()
        option = next(one for one in asked["permission_options"] if one["kind"] == "allow_once")
        answer = {name: asked[name] for name in ("request_id", "pending_id") if name in asked}
        await self.front.ask(
            "agent.permissions.respond", self.session, **answer, option_id=option["option_id"]
        )

    async def heard(self, word: str) -> None:
        await self.front.wait(lambda: word in self.front.text(), 40, f"{word!r}")

    async def left_the_agent(self) -> None:
        """The agent keeps what it said once its turn is over."""

        def kept() -> bool:
            return any("four " in file.read_text() for file in self.stack.agent_state.glob("*.json"))

        await eventually(kept, 20)


async def play(turn: Turn, service: str, phase: str) -> float:
    """A whole turn with one death in it; how many seconds it took from there to its end."""
    stack, front = turn.stack, turn.front
    killed = 0.0

    async def replace() -> None:
        nonlocal killed
        killed = time.monotonic()
        await stack.replace(service)

    async with asyncio.TaskGroup() as group:
        if phase == "before it is accepted":
            killed = time.monotonic()
            await stack.kill(service)
            group.create_task(stack.start(service), name="start again")
        await turn.prompt()
        if phase == "once it is accepted":
            group.create_task(replace(), name="replace")
        await turn.heard("one ")
        if phase == "in the text":
            group.create_task(replace(), name="replace")
        await turn.permission()
        if phase == "while it asks":
            await replace()
            assert len(await eventually(turn.listed, 40)) == 1
            assert front.of("turn")[-1].body["state"] == "waiting_permission"
        await turn.allow()
        if phase == "after its end":
            await turn.heard("three ")
            stack.services[service].signal(signal.SIGSTOP)
            await turn.left_the_agent()
            await replace()
        await front.until_ended(timeout=40)
    return time.monotonic() - killed


@pytest.mark.parametrize(("service", "phase"), cases("streams", "gateway", "remotes", "agent"))
async def test_a_turn_survives_the_death_of_any_service(stack: Stack, service: str, phase: str) -> None:
    """B67 (a, b), B69."""
    shutil.rmtree(stack.agent_state, ignore_errors=True)
    async with stack.frontend(f"user{next(_numbers)}") as front:
        session = await front.open()
        await front.watch(session, cursors={"agent": "start", "workspace": "start"})
        turn = Turn(stack, front, session)
        took = await play(turn, service, phase)
        again = await turn.prompt()
        await insist(front, "agent.prompt", session, text="say five ", client_message_id="m2")
        await front.until_ended(2, timeout=20)
        async with stack.frontend(front.client.user_id) as late:
            await late.watch(session, cursors={"agent": "start", "workspace": "start"})
            await front.ask("session.close", session)
            for one in (front, late):
                await one.until("session", state="closed", timeout=20)

    print(f"{service} killed {phase}: the turn ended {took:.1f} s later")
    live, afterwards = seen(front.events, "agent"), seen(late.events, "agent")
    assert in_order(live) == in_order(afterwards) == agree(live, afterwards) == []
    assert in_order(seen(front.events, "workspace")) == []
    assert one_end_each(live) == one_end_each(afterwards) == []
    assert of_one_text(pieces(live, "message_chunk", "text"), SAID + "five ") == []
    assert again == {"generation": 1}
    assert (turn.workspace / "ran.txt").read_text() == "ran\n"
    reasons = [one.body["reason"] for one in live if one.type == "turn" and one.body["state"] == "ended"]
    died_with_it = (service, phase) == ("streams", "after its end")  # the daemon's last words, that is
    assert reasons == ["end_turn"] * 2 or (died_with_it and reasons == ["unknown", "end_turn"])
    assert took < 25


@pytest.mark.parametrize("phase", phases("daemon")[:4])
async def test_a_turn_whose_daemon_dies_ends_once_and_its_session_fails(stack: Stack, phase: str) -> None:
    """B66 (b), B67 (c): what ran in it is gone, nobody's screen says "running" for ever, and the next session works."""
    async with stack.frontend(f"user{next(_numbers)}") as front:
        session = await front.open()
        await front.watch(session, cursors={"agent": "start", "workspace": "start"})
        turn = Turn(stack, front, session)
        if phase != "before it is accepted":
            await turn.prompt()
        if phase == "in the text":
            await turn.heard("one ")
        if phase == "while it asks":
            await turn.permission()
        began = time.monotonic()
        await stack.kill("daemon")
        if phase == "before it is accepted":
            with contextlib.suppress(TielineError):
                await front.ask("agent.prompt", session, text=TURN)
        await stack.start("daemon")
        await front.until("session", state="failed", timeout=40)
        took = time.monotonic() - began
        with pytest.raises(TielineError, match=r"."):
            await front.ask("agent.prompt", session, text="say again")
        async with stack.frontend(front.client.user_id) as late:
            await late.watch(session, cursors={"agent": "start", "workspace": "start"})
            await late.wait(lambda: late.cursors.get("agent") == front.cursors["agent"], 20, "the end")
            other = await late.open()
            await late.watch(other)
            await late.ask("agent.prompt", other, text="say fine")
            await late.until("turn", state="ended", reason="end_turn")
            await late.ask("session.close", other)

    print(f"daemon killed {phase}: the session failed {took:.1f} s later")
    live, afterwards = seen(front.events, "agent"), seen(late.events, "agent", session)
    assert in_order(live) == agree(live, afterwards) == one_end_each(live) == []
    assert front.of("permissions")[-1].body["open"] == []
    assert not (turn.workspace / "ran.txt").exists()
