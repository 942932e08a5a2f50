"""The agent that threads talk to: finds the remotes in a thread's resources and gives the run to the expert agent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tieline_agent.expert import ExpertAgent, Record, RunInput
from tieline_agent.thread import Thread
from tieline_agent.tools import Tool


class Agent:
    """Answers the messages of threads."""

    def __init__(self, expert: ExpertAgent, input_tools: Sequence[Tool] = ()) -> None:
        self._expert = expert
        self._input_tools = input_tools

    async def received_message(
        self,
        user_id: str,
        thread: Thread,
        run_id: str,
        record: Record,
        cancelled: asyncio.Event,
        *,
        model: str | None = None,
        instructions: str = "",
    ) -> None:
        """Answer the message of a run, with the remotes that the thread has been given until then."""
        remotes = remotes_of(thread.resources(run_id))
        given = RunInput(user_id, thread, run_id, remotes, self._input_tools, model, instructions)
        await self._expert.run(given, record, cancelled)


def remotes_of(resources: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of remotes among resources, each once, in the order in which they were given."""
    names = (item.get("content") for item in resources if item.get("subkind") == "remote")
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))
