"""`tieline prompt`: a prompt goes to a session's agent, its answer comes to the terminal as it is said."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import uuid
from typing import TYPE_CHECKING, Any

from tieline_ops import timeline
from tieline_ops.cli import output, reach, safe, using
from tieline_ops.cli.codes import Exit, Problem
from tieline_ops.cli.contexts import Place

if TYPE_CHECKING:
    from tieline import Client, Event

_QUIET = (
    "message_chunk",
    "turn",
    "epoch",
    "complete",
    "context_window",
    "permissions",
    "session_status",
    "connection",
)


async def prompt(
    where: Place, user: str, wanted: str, words: list[str], *, wait: bool, allow: bool, queue: bool
) -> int:
    text = await asyncio.to_thread(sys.stdin.read) if words == ["-"] else " ".join(words)
    async with reach.client(where, user) as client:
        session = await using.found(client, wanted)
        payload = {"session_id": session, "text": text, "client_message_id": uuid.uuid4().hex}
        if queue:
            payload["queue"] = True
        async with await client.subscribe(session, ("agent",), {"agent": "now"}) as events:
            generation = (await client.request("agent.prompt", payload))["generation"]
            if not wait:
                output.note(f"turn {generation} is accepted")
                return Exit.OK
            answer = _Answer(client, session, generation, allow)
            try:
                async for event in events:
                    if (reason := await answer.heard(event)) is not None:
                        return _end(reason)
            except asyncio.CancelledError:  # Ctrl-C: the agent stops too
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(client.request("agent.cancel", {"session_id": session}), 5)
                output.note("cancelled")
                raise
    raise Problem("the events ended before the turn did", Exit.UNAVAILABLE)


def _end(reason: str) -> int:
    if reason == "end_turn":
        return Exit.OK
    output.note(f"the turn ended: {reason}")
    return Exit.FAILED


class _Answer:
    """What is heard of one turn, as a person reads it: the words on standard output, the rest beside them."""

    def __init__(self, client: Client, session: str, generation: int, allow: bool) -> None:
        self._client = client
        self._session = session
        self._generation = generation
        self._allow = allow
        self._open = False  # a line of words has begun
        self._mine = False
        self._asked: set[str] = set()

    async def heard(self, event: Event) -> str | None:
        """One event; returns why the turn ended, once it has."""
        body = event.body
        if event.type == "turn":
            self._mine = body.get("generation") == self._generation and body.get("state") != "ended"
            if body.get("generation") == self._generation and body.get("state") == "ended":
                self._line()
                return str(body.get("reason") or "unknown")
        elif not self._mine:
            return None
        elif event.type == "message_chunk" and body.get("role") != "user":
            self._words(str(body.get("text", "")))
        elif event.type == "permission_request":
            await self._permission(body)
        elif event.type not in _QUIET:
            self._line()
            output.note(timeline.line(body))
        return None

    def _words(self, text: str) -> None:
        if text:
            output.write(safe.block(text) if sys.stdout.isatty() else text)
            self._open = not text.endswith("\n")

    def _line(self) -> None:
        if self._open:
            output.write("\n")
            self._open = False

    async def _permission(self, body: dict[str, Any]) -> None:
        pending = str(body.get("pending_id"))
        if pending in self._asked:
            return
        self._asked.add(pending)
        self._line()
        options = [one for one in body.get("permission_options") or [] if isinstance(one, dict)]
        title = str(body.get("permission_title") or "something")
        chosen = await self._choose(title, options)
        told: dict[str, Any] = {"session_id": self._session, "pending_id": pending}
        if body.get("request_id") is not None:
            told["request_id"] = body["request_id"]
        told |= {"option_id": chosen} if chosen else {"cancelled": True}
        await self._client.request("agent.permissions.respond", told)

    async def _choose(self, title: str, options: list[dict[str, Any]]) -> str | None:
        if self._allow:
            for one in options:
                if str(one.get("kind", "")).startswith("allow"):
                    output.note(f"allowed: {title}")
                    return str(one.get("option_id"))
        if not sys.stdin.isatty():
            raise Problem(
                f"the agent asks permission: {title}",
                Exit.FAILED,
                "answer in a frontend, or prompt with --allow",
            )
        output.note(f"the agent asks permission: {title}")
        for n, one in enumerate(options, 1):
            output.note(f"  {n}  {one.get('name') or one.get('option_id')}")
        said = (await asyncio.to_thread(input, "which? ")).strip()
        if said.isdecimal() and 0 < int(said) <= len(options):
            return str(options[int(said) - 1].get("option_id"))
        return None
