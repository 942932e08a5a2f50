"""The scripted agentctl behind a link, with an event queue as the daemon in the field has it, or as ours has it.

field: whoever is connected to the agent stream competes for the events, and what is written to a socket is gone.
ours: a dial of a higher epoch closes the streams before it, one of a lower epoch is refused, and what could not be
written waits for the next stream.
"""

from __future__ import annotations

import itertools
from collections import deque
from contextlib import AsyncExitStack
from typing import Any, Literal

from tests.support.agentctl import Agentctl, Answer, Asked, Stream, complete, event
from tests.support.link import Link

Mode = Literal["field", "ours"]
_REPLACED = 4001


def _epoch(asked: Asked) -> int:
    return int(asked.headers.get("x-tieline-epoch", "0"))


class ScriptedDaemon(Agentctl):
    """`say` gives events to whoever has the agent stream, `show` frames to all who have the workspace's."""

    def __init__(self, mode: Mode = "field") -> None:
        super().__init__()
        self.mode = mode
        self.links: list[Link] = []
        self.given: list[tuple[int, Any]] = []  # number of the agent stream, and the event that it was given
        self._waiting: deque[Any] = deque()
        self._turn = itertools.count()
        self._epochs = {"agent": 0, "workspace": 0}
        self._replaced: set[Stream] = set()
        self._stack = AsyncExitStack()
        self.shell = ""  # all that it ever wrote; the last 16 KiB are kept
        self.script.http["GET", "/api/v1/shell/buffer"] = lambda _: (200, {"data": self.shell[-16_384:]})
        self.script.http["GET", "/api/v1/processes"] = lambda _: (200, [])

    @property
    def link(self) -> Link:
        """What stands before the newest instance."""
        return self.links[-1]

    def open(self, streams: list[Stream]) -> list[Stream]:
        """Those that events and frames may be written to."""
        return [one for one in streams if not one.closed.is_set() and one not in self._replaced]

    def say(self, *events: Any) -> None:
        """Events of the agent."""
        self._waiting.extend(events)
        self._give()

    def text(self, *texts: str) -> None:
        """Pieces of an answer."""
        self.say(*(event("message_chunk", text=text) for text in texts))

    def finish(self, generation: int = 1) -> None:
        """The end of a prompt."""
        self.say(complete(generation))

    def show(self, *frames: Any) -> None:
        """Frames of the workspace."""
        for stream in self.open(self.workspace):
            stream.send(*frames)

    def write(self, data: str) -> None:
        """Output of the shell."""
        self.shell += data
        self.show({"type": "shell_output", "data": data})

    def prompts(self) -> list[str]:
        """What the agent was ever asked."""
        return [frame["payload"]["text"] for stream in self.agent for frame in stream.of("agent.prompt")]

    def given_to(self, number: int) -> list[Any]:
        """The events that an agent stream was given."""
        return [event for to, event in self.given if to == number]

    def _give(self) -> None:
        while self._waiting and (readers := self.open(self.agent)):
            reader = readers[-1] if self.mode == "ours" else readers[next(self._turn) % len(readers)]
            self.given.append((self.agent.index(reader), self._waiting[0]))
            reader.send(self._waiting.popleft())

    async def announced(self, port: int) -> int:
        self.links.append(await self._stack.enter_async_context(Link("127.0.0.1", port)))
        return self.link.port

    def refusal(self, name: str, asked: Asked) -> Answer | None:
        if self.mode == "ours" and _epoch(asked) < self._epochs[name]:
            return 409, {"error": "a newer connection owns this stream", "expected_epoch": self._epochs[name]}
        return super().refusal(name, asked)

    def connected(self, name: str, stream: Stream) -> None:
        self._epochs[name] = max(self._epochs[name], _epoch(stream.asked))
        if self.mode == "ours":
            for older in self.open(self.agent if name == "agent" else self.workspace)[:-1]:
                older.close(_REPLACED)
                self._replaced.add(older)
        self._give()

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()
        await super().__aexit__(*exc)
