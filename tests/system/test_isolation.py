"""The three connections are three: a flood on one delays nothing on another."""

import time
from collections.abc import Callable

import pytest

from tests.support.frontend import Frontend

SIZE = 100_000_000
BOUND = 2.0  # seconds; the promise is 0.2, the rest is for two cores that other tests use at the same time


def over(flooded: Frontend) -> bool:
    """Whether the flood has ended; other output may have come after it."""
    return "DONE" in "".join(event.body.get("data", "") for event in flooded.events[-100:])


@pytest.mark.timeout(60)
async def test_a_flood_in_the_shell_delays_no_permission_and_no_answer(
    frontend: Callable[[], Frontend],
) -> None:
    """B77: 100 MB of shell output, and the agent's questions come as if there were none."""
    async with frontend() as flooded, frontend() as front:
        session = await front.open()
        await flooded.watch(session, ["workspace"])
        await front.watch(session, ["agent"])
        await front.ask(
            "shell.input", session, data=f"head -c {SIZE} /dev/zero | tr '\\0' y; printf 'DO''NE'\n"
        )
        await flooded.until("shell_output", 100, timeout=20)
        slowest = 0.0
        for turn in range(1, 6):
            began = time.monotonic()
            await front.ask("agent.prompt", session, text="ask May I?\nsay yes")
            await front.until("permission_request", turn)
            slowest = max(slowest, time.monotonic() - began)
            began = time.monotonic()
            await front.allow(session, turn)
            await front.until_ended(turn)
            slowest = max(slowest, time.monotonic() - began)
        flooding = not over(flooded)
        await flooded.wait(lambda: over(flooded), 40, "the end of the flood")

    assert flooding, "the flood was over too soon to prove anything"
    assert slowest < BOUND
