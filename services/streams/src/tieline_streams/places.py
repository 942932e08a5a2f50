"""Where the sessions of this process work: what an executor and an agent are by their names."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from tieline_protocol.errors import TielineError
from tieline_protocol.messages import SessionRecord

from tieline_streams import executors
from tieline_streams.config import Executors
from tieline_streams.executors import Executor
from tieline_streams.ownership import Place


class Named(NamedTuple):
    """A place, and what the operator calls its executor and its agent."""

    executor: str
    agent: str
    place: Place


class Places:
    def __init__(self, known: Executors) -> None:
        self._known = known
        self._executors: dict[str, Executor] = {
            name: executors.make(settings) for name, settings in known.executors.items()
        }

    async def find(
        self, executor: str | None, agent: str | None, workspace: str | None, session: str
    ) -> Named:
        """The first ones where none is named; the folder is made. Raises TielineError."""
        name, settings = self._known.executor(executor)
        agent_name, agent_settings = self._known.agent(agent)
        path = await asyncio.to_thread(executors.place, settings.root, workspace, session)
        return Named(name, agent_name, Place(self._executors[name], settings.routes, path, agent_settings))

    async def of(self, record: SessionRecord) -> Place | None:
        """None where the operator does not know its executor or agent any more, or its folder cannot be had."""
        try:
            found = await self.find(record.executor, record.agent, record.workspace, record.session)
        except TielineError:
            return None
        return found.place
