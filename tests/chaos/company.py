"""Two more users than those with sessions: one whose remote is called all the time, one who chats with its help."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from tieline import Remote, TielineError

from tests.support.frontend import Frontend
from tests.support.playing import Trail, insist

Timed = Callable[[str, Coroutine[Any, Any, None]], Coroutine[Any, Any, None]]

_CALL_MS = 5_000
_PAUSE = 0.3


class Company:
    """`ran` is what the remote's function was called with, `outcomes` how the calls ended."""

    def __init__(self, owner: Frontend, caller: Frontend) -> None:
        self.ran: Counter[int] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.said: list[str] = []
        self.events: list[dict[str, Any]] = []
        self._owner = owner
        self._caller = caller
        self._numbers = 0
        self._thread = ""
        self.trail = Trail()  # of the chat

    def remote(self) -> Remote:
        made = Remote("calc")

        @made.function
        def double(n: int) -> int:
            """Twice the number."""
            self.ran[n] += 1
            return 2 * n

        return made

    async def work(self, enough: asyncio.Future[Any], timed: Timed) -> None:
        """Until it is enough, and until both have worked once more after that."""
        async with self._owner.client.serve(self.remote()):
            await self._begin()
            reading = asyncio.create_task(self._read(), name="chat")
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(timed("calls", self._call(enough)), name="calls")
                    group.create_task(timed("chats", self._chat(enough)), name="chats")
            finally:
                reading.cancel()
                await asyncio.wait([reading])

    async def _call(self, enough: asyncio.Future[Any]) -> None:
        while True:
            over = enough.done()
            self._numbers += 1
            try:
                told = await self._caller.client.call(
                    "calc", "double", {"n": self._numbers}, timeout_ms=_CALL_MS
                )
                assert told == 2 * self._numbers
                self.outcomes["result"] += 1
                if over:
                    return
            except TielineError as exc:
                self.outcomes[exc.code] += 1
            await asyncio.wait([enough], timeout=_PAUSE)
            await asyncio.sleep(_PAUSE / 3)

    async def _begin(self) -> None:
        self._thread = (await self._caller.ask("thread.create"))["thread_id"]

    async def _read(self) -> None:
        async for event in await self._caller.client.subscribe_thread(self._thread):
            self.events.append(event.body)

    async def _chat(self, enough: asyncio.Future[Any]) -> None:
        over = False
        number = 0
        while not over:
            await asyncio.wait([enough], timeout=1)
            over, number = enough.done(), number + 1
            await self._say(f'call double {{"n": {-number}}}', f"c{number}")

    async def _say(self, content: str, message: str) -> None:
        """One message, to the end of its run."""
        resource = {"kind": "system", "subkind": "remote", "content": "calc"}
        payload = {"content": content, "resources": [resource], "client_message_id": message}
        self.said.append(content)
        run = ""

        async def say() -> None:
            nonlocal run
            run = (
                await self._caller.client.request("thread.message", {"thread_id": self._thread, **payload})
            )["run_id"]

        self.trail.note(f"{message} asked")
        await insist(say, self.trail)
        self.trail.note("accepted")
        await self._caller.wait(lambda: run in self.ended(), 60, f"the end of the run of {message}", 0.05)
        self.trail.note("ended")

    def ended(self) -> list[Any]:
        """The runs that ended, in order."""
        return [one["run_id"] for one in self.events if one["type"] == "run" and one["state"] == "ended"]

    def wrong(self) -> list[str]:
        found = [f"double({n}) ran {times} times" for n, times in self.ran.items() if times > 1]
        heard = [one["content"] for one in self.events if one["type"] == "message" and one["role"] == "user"]
        if heard != self.said:
            found.append(f"said {self.said}, in the log {heard}")
        ends = self.ended()
        if len(ends) != len(set(ends)) or len(ends) != len(self.said):
            found.append(f"{len(self.said)} messages, ends of runs: {ends}")
        return found


@contextlib.asynccontextmanager
async def company(owner: Frontend, caller: Frontend) -> AsyncIterator[Company]:
    """Both connected."""
    async with owner, caller:
        yield Company(owner, caller)
