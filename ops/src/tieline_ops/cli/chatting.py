"""`tieline chat`: a thread with the expert agent, on a terminal or for one question."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import uuid
from typing import TYPE_CHECKING, Any

from tieline_ops import timeline
from tieline_ops.cli import output, reach, safe
from tieline_ops.cli.codes import Exit, Problem
from tieline_ops.cli.contexts import Place

if TYPE_CHECKING:
    from tieline import Client, Event, Subscription


async def chat(where: Place, user: str, text: str, thread: str, remotes: list[str], model: str) -> int:
    async with reach.client(where, user) as client:
        if not thread:
            payload = {"title": text[:60] or "Chat"} | ({"model": model} if model else {})
            thread = (await client.request("thread.create", payload))["thread_id"]
            output.note(f"thread {thread}")
        elif model:
            raise Problem("a thread keeps its model: --model is for a new one", Exit.USAGE)
        talk = _Talk(client, thread, remotes)
        async with await client.subscribe_thread(thread, "now") as events:
            if text:
                return await talk.ask(text, events)
            if not sys.stdin.isatty():
                return await talk.ask(await asyncio.to_thread(sys.stdin.read), events)
            return await _converse(talk, events)


async def _converse(talk: _Talk, events: Subscription) -> int:
    code: int = Exit.OK
    while True:
        try:
            said = await asyncio.to_thread(input, "> ")
        except EOFError:
            output.write("\n")
            return code
        if said.strip():
            code = await talk.ask(said, events)


class _Talk:
    """Questions and answers of one thread, one at a time."""

    def __init__(self, client: Client, thread: str, remotes: list[str]) -> None:
        self._client = client
        self._thread = thread
        self._resources = [{"kind": "system", "subkind": "remote", "content": name} for name in remotes]
        self._run = ""
        self._open = False

    async def ask(self, text: str, events: Subscription) -> int:
        """One question; its answer is shown as it is said. Ctrl-C cancels it."""
        payload: dict[str, Any] = {
            "thread_id": self._thread,
            "content": text,
            "client_message_id": uuid.uuid4().hex,
            **({"resources": self._resources} if self._resources else {}),
        }
        self._run = (await self._client.request("thread.message", payload))["run_id"]
        loop = asyncio.get_running_loop()
        cancelling: list[asyncio.Task[None]] = []

        def cancel() -> None:
            if not cancelling:
                cancelling.append(asyncio.create_task(self._cancel(), name="cancel the run"))

        loop.add_signal_handler(signal.SIGINT, cancel)
        try:
            async for event in events:
                if (reason := self._heard(event)) is not None:
                    return Exit.OK if reason == "answer" else self._other(reason)
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            for task in cancelling:
                await task
        raise Problem("the events ended before the answer did", Exit.UNAVAILABLE)

    async def _cancel(self) -> None:
        with contextlib.suppress(Exception):  # what came of it is told by the run's end
            await self._client.request("thread.cancel", {"thread_id": self._thread, "run_id": self._run})

    def _other(self, reason: str) -> int:
        output.note(f"the run ended: {reason}")
        return Exit.INTERRUPTED if reason == "cancelled" else Exit.FAILED

    def _heard(self, event: Event) -> str | None:
        body = event.body
        if body.get("run_id") != self._run:
            return None
        match event.type:
            case "delta":
                text = str(body.get("text", ""))
                output.write(safe.block(text) if sys.stdout.isatty() else text)
                self._open = not text.endswith("\n")
            case "tool_call" | "tool_progress" | "tool_result":
                self._line()
                output.note(timeline.line(body))
            case "run" if body.get("state") == "ended":
                self._line()
                return str(body.get("reason") or "error")
        return None

    def _line(self) -> None:
        if self._open:
            output.write("\n")
            self._open = False
