"""Answers to permissions that come again, from two tabs at once, too late, or after a restart; the daemon is real."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from tieline_protocol.bus import Bus
from tieline_protocol.errors import Code, Refused, TielineError
from tieline_streams.config import Executors

from tests.support import streams
from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer
from tests.support.streams import Frontend


@pytest.fixture
def known(tmp_path: Path) -> Executors:
    env = {"AGENTCTL_SHELL_COMMAND": "/bin/sh"}
    local = {"kind": "local", "root": str(tmp_path / "work"), "env": env}
    agent = {"command": [sys.executable, "-m", "tieline_agentctl.example_agent"]}
    return Executors.model_validate({"executors": {"local": local}, "agents": {"example": agent}})


class Cards:
    """The cards that a tab shows, and its button."""

    def __init__(self, bus: Bus) -> None:
        self.user = Frontend(bus)

    async def open(self) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = (await self.user.events("agent", "permissions"))[-1]["open"]
        return shown

    async def asked(self, title: str) -> dict[str, Any]:
        """Wait for the card with this title."""

        async def found() -> dict[str, Any] | None:
            return next((one for one in await self.open() if one["permission_title"] == title), None)

        card: dict[str, Any] = await eventually(found, 15)
        return card

    async def click(self, card: dict[str, Any], *, named: bool = True) -> str:
        """Allow; `named` by its request too. What came of it."""
        names = ("request_id", "pending_id") if named else ("pending_id",)
        answer = {**{name: card[name] for name in names}, "option_id": "allow"}
        try:
            return str((await self.user.command("agent.permissions.respond", answer))["status"])
        except Refused as exc:
            return exc.code.value

    async def ended(self, generation: int) -> str:
        end = await self.user.until("agent", "turn", 15, generation=generation, state="ended")
        return str(end["reason"])


REFUSED = (Code.CONFLICT.value, Code.NOT_FOUND.value)


@pytest.mark.timeout(60)
async def test_a_permission_is_answered_once_and_whoever_comes_late_is_told_so(
    nats_server: NatsServer, bus: Bus, known: Executors
) -> None:
    """B69: after a restart, from two tabs at once, again, after the daemon took it back, and after the turn."""
    tab, other = Cards(bus), Cards(bus)
    user = tab.user
    async with streams.running(nats_server.url, known):
        other.user.session = await user.open()
        await user.command("agent.prompt", {"text": "ask One\nask Two"})
        one = await tab.asked("One")
    async with streams.running(nats_server.url, known):
        await eventually(lambda: _answers(user), 20)
        assert await tab.open() == [one]
        at_once = sorted(await asyncio.gather(tab.click(one), other.click(one)))
        two = await tab.asked("Two")
        again = [await tab.click(one), await other.click(one, named=False)]
        still = await tab.open()
        await user.command("agent.cancel")
        assert await tab.ended(1) == "cancelled"
        taken_back = [await tab.click(two), await other.click(two, named=False)]

        await user.command("agent.prompt", {"text": "ask Three"})
        three = await tab.asked("Three")
        assert await tab.click(three, named=False) == "resolved"
        assert await tab.ended(2) == "end_turn"
        after_the_end = [await tab.click(three), await other.click(three, named=False)]
        nothing = await tab.open()
        await user.command("agent.prompt", {"text": "say fine"})
        assert await tab.ended(3) == "end_turn"
        said = "".join(one["text"] for one in await user.events("agent", "message_chunk"))
        states = [one["state"] for one in await user.events("agent", "session")]
        await user.command("session.close", budget_ms=20_000)

    assert [one for one in at_once if one not in REFUSED] == ["resolved"]
    assert all(one in REFUSED for one in (*again, *taken_back, *after_the_end))
    assert still == [two]
    assert nothing == []
    assert said.replace("cancelled", "") == "allowallowfine"  # it may have a last word before it stops
    assert states == ["opening", "ready"]


async def _answers(user: Frontend) -> bool:
    try:
        return bool(await user.command("session.get", budget_ms=1_000))
    except TielineError:
        return False
