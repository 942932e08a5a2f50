"""`tieline shell`: this terminal becomes the terminal of a session's shell, until a key detaches it.

Keys go as they are pressed, sizes as they change. The screen is shown as the shell has it, then as it goes on; after
a lost connection it goes on where it was.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tieline_ops.cli import output, reach, screen, using
from tieline_ops.cli.codes import Exit, Problem
from tieline_ops.cli.contexts import Place

if TYPE_CHECKING:
    from tieline import Client, Subscription

_READ = 65_536


async def attach(where: Place, user: str, wanted: str, named: str) -> int:
    try:
        leave = screen.key(named)
    except ValueError as exc:
        raise Problem(f"--detach: {exc}", Exit.USAGE) from exc
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Problem(
            "a shell needs a terminal here", Exit.USAGE, "`tieline tail --type shell_output` needs none"
        )
    async with reach.client(where, user) as client:
        session = await using.found(client, wanted)
        buffer = await client.request("shell.buffer", {"session_id": session})
        cursors = {"workspace": buffer["cursor"]} if buffer.get("cursor") else {"workspace": "now"}
        async with await client.subscribe(session, ("workspace",), cursors) as events:
            with output.restoring(), _raw(sys.stdin.fileno()):
                _show(f"[attached to the shell of {session}; {named} detaches]\r\n")
                _show(screen.again(buffer["data"]))
                why = await _Terminal(client, session, leave).run(events)
    output.note(why)
    return Exit.OK


class _Terminal:
    def __init__(self, client: Client, session: str, leave: str) -> None:
        self._client = client
        self._session = session
        self._leave = leave
        self._keys: asyncio.Queue[tuple[str, dict[str, Any]] | None] = asyncio.Queue(1_000)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def run(self, events: Subscription) -> str:
        """Until it is detached or the shell ends; returns why."""
        loop = asyncio.get_running_loop()
        self._resized()
        loop.add_signal_handler(signal.SIGWINCH, self._resized)
        loop.add_reader(sys.stdin.fileno(), self._typed)
        try:
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(self._send(), name="keys to the shell")
                showing = group.create_task(self._output(events), name="output of the shell")
                done, _ = await asyncio.wait([sending, showing], return_when=asyncio.FIRST_COMPLETED)
                sending.cancel()
                showing.cancel()
            return next(iter(done)).result()
        finally:
            loop.remove_reader(sys.stdin.fileno())
            loop.remove_signal_handler(signal.SIGWINCH)

    def _typed(self) -> None:
        data = os.read(sys.stdin.fileno(), _READ)
        text = self._decoder.decode(data, final=not data)
        before, found, _ = text.partition(self._leave)
        if before:
            self._put("shell.input", {"data": before})
        if found or not data:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._put(None)

    def _resized(self) -> None:
        size = os.get_terminal_size(sys.stdin.fileno())
        self._put("shell.resize", {"cols": size.columns, "rows": size.lines})

    def _put(self, action: str | None, payload: dict[str, Any] | None = None) -> None:
        with contextlib.suppress(
            asyncio.QueueFull
        ):  # a shell that takes nothing loses keys, as a terminal line does
            self._keys.put_nowait(None if action is None else (action, payload or {}))

    async def _send(self) -> str:
        while (item := await self._keys.get()) is not None:
            action, payload = item
            await self._client.request(action, {"session_id": self._session, **payload})
        return "detached; the shell goes on"

    async def _output(self, events: Subscription) -> str:
        async for event in events:
            match event.type:
                case "shell_output":
                    _show(str(event.body.get("data", "")))
                case "shell_exit":
                    return f"the shell ended with {event.body.get('code', 0)}"
                case "gap":
                    _show(f"\r\n[{event.body.get('events', 'some')} events are missing]\r\n")
                case "session" if event.body.get("state") in ("closed", "failed"):
                    return f"the session is {event.body['state']}"
        return "the session's events ended"


def _show(text: str) -> None:
    output.write(text)


@contextlib.contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """Every key as it is pressed, nothing echoed here; the terminal is as it was afterwards."""
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)  # what was typed already is for the shell too
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        with contextlib.suppress(OSError):
            output.write(f"{screen.RESET}\n")
