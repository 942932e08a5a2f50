"""A scripted model for tests: the server that people without a key get, here with scripts for every oddity."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

from tieline_ops.scripted_model import server
from tieline_ops.scripted_model.script import Script


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A running server: where it is, and what it saw."""

    url: str
    state: server.ScriptedModel

    def says(self, *replies: dict[str, Any], then: Literal["rules", "repeat", "refuse"] = "refuse") -> None:
        """Answer the next requests so (see script.py)."""
        self.state.script = Script(list(replies), then)

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The bodies of the requests that were taken, oldest first."""
        return list(self.state.requests)


@contextlib.asynccontextmanager
async def model_server(*replies: dict[str, Any], pace: float = 0.0) -> AsyncIterator[ModelServer]:
    """A server of this test's own. With replies it gives those and then refuses; without, it goes by its rules."""
    state = server.ScriptedModel(Script(list(replies), "refuse" if replies else "rules"), pace=pace)
    async with server.serving(state) as url:
        yield ModelServer(url, state)


def steps(*steps: dict[str, Any]) -> dict[str, Any]:
    """A reply that streams these steps."""
    return {"steps": list(steps)}


def dripping(step: dict[str, Any], every: float, times: int) -> dict[str, Any]:
    """A reply that does the same step again and again, so many seconds apart."""
    return steps(*(each for _ in range(times) for each in (step, {"wait": every})))


def saying(text: str) -> dict[str, Any]:
    """A reply that says a text, a word at a time, and ends well."""
    return steps(*({"text": piece} for piece in text.split(" ")))


def calling(*calls: tuple[str, Any], pieces: int = 2) -> dict[str, Any]:
    """A reply that asks for calls (name, arguments) and ends well."""
    return steps(*({"call": {"name": name, "arguments": args, "pieces": pieces}} for name, args in calls))
