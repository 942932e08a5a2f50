"""A scripted daemon with many instances that work by themselves: what a prompt says is carried out, as ours would.

A prompt is steps, separated by `|`: `say N` (N pieces of text), `wait SECONDS`, `ask` (a permission, which is waited
for). Every piece of text and every line of a shell is another, so what is missing or comes twice can be seen. A dial
of a higher epoch has the stream; what cannot be written waits for the next one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import Any

from tests.support.agentctl import Agentctl, Answer, Asked, Stream, complete, event

_KEPT = 64 * 1024


class Worker:
    """One instance. `said` is all that its agent ever said, `shell` all that its shell wrote."""

    def __init__(self) -> None:
        self.said = ""
        self.shell = ""
        self.prompts: list[str] = []
        self.generation = 0
        self.decided: list[str] = []
        self.pid = 4711  # of the agent
        self.dials: Counter[str] = Counter()  # by stream
        self.loads = 0
        self.agent: list[Stream] = []
        self.workspace: list[Stream] = []
        self.working: asyncio.Task[None] | None = None
        self._asked: dict[str, asyncio.Future[str]] = {}
        self._waiting: deque[Any] = deque()
        self._pieces = 0
        self._lines = 0

    @property
    def busy(self) -> bool:
        return self.working is not None and not self.working.done()

    @property
    def settled(self) -> bool:
        """Whether everything that the agent did was written to somebody."""
        return not self.busy and not self._waiting

    def say(self, *events: Any) -> None:
        self._waiting.extend(events)
        self.give()

    def give(self) -> None:
        """Write what waits, if there is anybody to write to."""
        while self._waiting and self.agent and not self.agent[-1].closed.is_set():
            self.agent[-1].send(self._waiting.popleft())

    def write(self, lines: int) -> None:
        """Output of the shell: so many lines at once."""
        data = ""
        for _ in range(lines):
            self._lines += 1
            data += f"line {self._lines}\n"
        self.shell += data
        if self.workspace and not self.workspace[-1].closed.is_set():
            self.workspace[-1].send({"type": "shell_output", "data": data})

    def hang_up(self, which: str) -> None:
        """Close a stream in an orderly way, whatever is under way."""
        streams = self.agent if which == "agent" else self.workspace
        if streams and not streams[-1].closed.is_set():
            streams[-1].close()
            streams[-1].closed.set()  # nothing is written behind the Close

    async def carry_out(self, prompt: str, generation: int) -> None:
        for step in prompt.split("|"):
            name, _, argument = step.strip().partition(" ")
            if name == "say":
                for _ in range(int(argument)):
                    self._pieces += 1
                    text = f"piece {self._pieces}. "
                    self.said += text
                    self.say(event("message_chunk", text=text))
                    await asyncio.sleep(0)
            elif name == "wait":
                await asyncio.sleep(float(argument))
            elif name == "ask":
                await self._ask(f"p{generation}")
        self.say(complete(generation))

    async def _ask(self, pending: str) -> None:
        decision = self._asked[pending] = asyncio.get_running_loop().create_future()
        option = {"option_id": "allow", "name": "Allow", "kind": "allow_once"}
        self.say(
            event(
                "permission_request",
                request_id=pending,
                pending_id=pending,
                permission_title="May I?",
                permission_options=[option],
            )
        )
        self.decided.append(await decision)
        del self._asked[pending]

    # What is asked of it

    def prompted(self, payload: dict[str, Any]) -> Any:
        if self.busy:
            return Exception("CONFLICT")
        self.prompts.append(payload["text"])
        self.generation = int(payload["prompt_generation"])
        work = self.carry_out(payload["text"], self.generation)
        self.working = asyncio.get_running_loop().create_task(work, name=f"prompt {self.generation}")
        return {"success": True}

    def loaded(self) -> Any:
        self.loads += 1
        return {"success": True, "session_id": "acp-1"}

    def open(self) -> list[dict[str, Any]]:
        return [
            {"request_id": one, "pending_id": one, "title": "May I?", "status": "pending"}
            for one in self._asked
        ]

    def resolved(self, payload: dict[str, Any]) -> Any:
        decision = self._asked.get(payload.get("pending_id", ""))
        if decision is None or decision.done():
            return Exception("NOT_FOUND")
        decision.set_result(payload.get("option_id", ""))
        return {"status": "resolved"}

    def status(self) -> Answer:
        told = {
            "agent_status": "running",
            "process_info": {"status": "running", "exit_code": -1, "pid": self.pid},
        }
        return 200, {**told, "busy": self.busy, "prompt_generation": self.generation}


class Workers(Agentctl):
    """`of[id]` is the worker of a session, since instances bear the ids of their sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, Worker] = {}
        script = self.script
        script.answers["agent.prompt"] = lambda stream, value: self._by(stream.asked).prompted(
            value["payload"]
        )
        script.answers["agent.permissions.list"] = lambda stream, _: self._listed(stream)
        script.answers["agent.permissions.resolve"] = lambda stream, value: self._by(stream.asked).resolved(
            value["payload"]
        )
        script.answers["agent.session.load"] = lambda stream, _: self._by(stream.asked).loaded()
        script.http["GET", "/api/v1/status"] = lambda asked: self._by(asked).status()
        script.http["GET", "/api/v1/shell/buffer"] = lambda asked: (
            200,
            {"data": self._by(asked).shell[-_KEPT:]},
        )
        script.http["GET", "/api/v1/processes"] = lambda _: (200, [])

    @property
    def open_sockets(self) -> int:
        """All connections that somebody holds to it."""
        return len(self._writers)

    def _by(self, asked: Asked) -> Worker:
        return self.of.setdefault(asked.headers["x-instance-id"], Worker())

    def _listed(self, stream: Stream) -> dict[str, Any]:
        open = self._by(stream.asked).open()
        return {"permissions": open, "total": len(open)}

    def connected(self, name: str, stream: Stream) -> None:
        worker = self._by(stream.asked)
        worker.dials[name] += 1
        streams = worker.agent if name == "agent" else worker.workspace
        for older in streams:
            if not older.closed.is_set():
                older.close()
                older.closed.set()
        streams[:] = [stream]
        # What is kept of the thousands of frames of a long run would be this process's leak, not the services'.
        self.agent.clear()
        self.workspace.clear()
        self.asked.clear()
        self.controlled.clear()
        worker.give()

    async def __aexit__(self, *exc: object) -> None:
        working = [worker.working for worker in self.of.values() if worker.working is not None]
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        await super().__aexit__(*exc)
