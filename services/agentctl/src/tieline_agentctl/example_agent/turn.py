"""One turn of the example agent: the directives of a prompt, carried out one after the other."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acp import RequestError
from acp.schema import ContentToolCallContent, FileEditToolCallContent, TextContentBlock, ToolCallLocation

from tieline_agentctl.example_agent.language import Directive, chunked
from tieline_agentctl.example_agent.session import Session

_MOST_OUTPUT = 256 * 1024
_MOST_SAID = 32 * 1024  # of a tool's result; every word of it is a chunk


class Stopped(Exception):
    """The turn ends here, with this stop reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class Turn:
    """What one prompt has done so far. `late` takes what is to be said after the turn."""

    session: Session
    late: Callable[[float, str], None]
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    stubborn: bool = False
    said: int = 0
    usage: tuple[int, int] | None = None

    async def carry_out(self, directives: tuple[Directive, ...]) -> str:
        """The stop reason."""
        try:
            for directive in directives:
                self._mind_cancel()
                await self._one(directive)
            self._mind_cancel()
        except Stopped as stopped:
            return stopped.reason
        return "end_turn"

    def _mind_cancel(self) -> None:
        if self.cancelled.is_set() and not self.stubborn:
            raise Stopped("cancelled")

    async def _one(self, directive: Directive) -> None:
        work: Callable[..., Awaitable[None]] = getattr(self, f"_{directive.name}")
        await work(*directive.arguments)

    async def _say(self, text: str) -> None:
        for chunk in chunked(text):
            self._mind_cancel()
            await self.session.say(chunk)
        self.said += len(text)

    async def _think(self, text: str) -> None:
        for chunk in chunked(text):
            self._mind_cancel()
            await self.session.think(chunk)

    async def _plan(self, steps: str) -> None:
        await self.session.plan([step.strip() for step in steps.split("|")])

    async def _chunks(self, count: str, text: str) -> None:
        for _ in range(int(count)):
            self._mind_cancel()
            await self.session.say(text)
        self.said += int(count) * len(text)

    async def _big(self, size: str) -> None:
        await self.session.say("0123456789abcdef" * (int(size) // 16) + "0123456789abcdef"[: int(size) % 16])

    async def _usage(self, used: str, size: str) -> None:
        self.usage = (int(used), int(size))
        await self.session.usage(int(used), int(size))

    async def _commands(self, names: str) -> None:
        await self.session.commands(names.split())

    async def _mode(self, mode: str) -> None:
        await self.session.change_mode(mode)

    async def _title(self, title: str) -> None:
        await self.session.title(title)

    async def _servers(self) -> None:
        named = [f"{server.name}:{getattr(server, 'type', 'stdio')}" for server in self.session.servers]
        await self.session.say(" ".join(named) or "none")

    async def _stderr(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    async def _child(self, seconds: str) -> None:
        child = await asyncio.create_subprocess_exec(
            "sleep", seconds, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL
        )
        await self.session.say(str(child.pid))

    async def _stubborn(self) -> None:
        self.stubborn = True

    async def _late(self, seconds: str, text: str) -> None:
        self.late(float(seconds), text)

    async def _stop(self, reason: str) -> None:
        raise Stopped(reason)

    async def _fail(self, text: str) -> None:
        raise RequestError(-32603, "Internal error", {"details": text})

    async def _crash(self, code: str) -> None:
        await self._exit(int(code) % 256)

    async def _exit(self, code: int = 0) -> None:
        sys.stdout.flush()
        os._exit(code)

    async def _wait(self, seconds: str) -> None:
        await self._until(asyncio.sleep(float(seconds)))

    async def _until(self, work: Awaitable[Any]) -> Any:
        """The work's result, unless a cancel comes first."""
        working = asyncio.ensure_future(work)
        cancel = asyncio.ensure_future(self.cancelled.wait())
        try:
            await asyncio.wait(
                [working] if self.stubborn else [working, cancel], return_when=asyncio.FIRST_COMPLETED
            )
            if not working.done():
                raise Stopped("cancelled")
            return working.result()
        finally:
            working.cancel()
            cancel.cancel()

    # tools

    async def _read(self, path: str) -> None:
        target = self._path(path)
        locations = [ToolCallLocation(path=str(target))]
        tool = await self.session.tool(f"Read {path}", "read", {"path": path}, locations=locations)
        try:
            text = target.read_text(errors="replace")
        except OSError as error:
            await self.session.tool_update(tool, "failed", content=[_shown(str(error.strerror))])
            return
        await self.session.tool_update(tool, "completed", content=[_shown(text)])

    async def _write(self, path: str, text: str) -> None:
        target = self._path(path)
        given = {"path": path, "content": text}
        tool = await self.session.tool(
            f"Write {path}", "edit", given, locations=[ToolCallLocation(path=str(target))]
        )
        if not await self._may(tool, f"Write {path}", "edit", given):
            return
        try:
            old = target.read_text(errors="replace") if target.exists() else None
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, newline="")
        except OSError as error:
            await self.session.tool_update(tool, "failed", content=[_shown(str(error.strerror))])
            return
        diff = FileEditToolCallContent(type="diff", path=str(target), old_text=old, new_text=text)
        await self.session.tool_update(tool, "completed", content=[diff])

    async def _run(self, command: str) -> None:
        given = {"command": command, "cwd": self.session.cwd}
        tool = await self.session.tool(command, "execute", given)
        if not await self._may(tool, command, "execute", given):
            return
        await self.session.tool_update(tool, "in_progress")
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=self.session.cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            process_group=0,  # a cancel ends what the shell started too
        )
        try:
            data, _ = await self._until(process.communicate())
        except Stopped:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            raise
        output = data[:_MOST_OUTPUT].decode("utf-8", "replace")
        await self.session.tool_update(
            tool,
            "failed" if process.returncode else "completed",
            content=[_shown(output)],
            raw_output={"exit_code": process.returncode, "stdout": output},
        )

    async def _tools(self) -> None:
        client = await self._until(asyncio.to_thread(_mcp_client))
        try:
            names = await self._until(client.names(self.session.servers))
        except client.ToolFailed as error:
            await self.session.say(f"no tools: {error}")
        else:
            await self._say("\n".join(names) or "none")

    async def _tool(self, name: str, written: str) -> None:
        given = json.loads(written)
        tool = await self.session.tool(name, "other", given)
        await self.session.tool_update(tool, "in_progress")
        client = await self._until(asyncio.to_thread(_mcp_client))
        try:
            result = await self._until(client.call(self.session.servers, name, given))
        except client.ToolFailed as error:
            await self.session.tool_update(tool, "failed", content=[_shown(str(error))])
            await self._say(f"{name} failed: {error}")
            return
        status = "failed" if result.is_error else "completed"
        await self.session.tool_update(tool, status, content=[_shown(result.text[:_MOST_OUTPUT])])
        await self._say(result.text[:_MOST_SAID])

    async def _ask(self, title: str) -> None:
        tool = await self.session.tool(title, "other", {})
        answer = await self._until(self.session.allowed(tool, title, "other", {}))
        await self.session.tool_update(tool, "completed" if answer else "failed")
        await self.session.say(answer or "cancelled")

    async def _may(self, tool: str, title: str, kind: Any, given: dict[str, Any]) -> bool:
        answer = await self._until(self.session.allowed(tool, title, kind, given))
        if answer in ("allow", "always"):
            return True
        await self.session.tool_update(tool, "failed", content=[_shown("not allowed")])
        await self.session.say("I was not allowed to.")
        return False

    def _path(self, path: str) -> Path:
        return Path(self.session.cwd) / path


def _mcp_client() -> Any:
    # Loading it takes longer than everything else that this agent does, and few turns call a tool.
    from tieline_agentctl.example_agent import mcp_client

    return mcp_client


def _shown(text: str) -> ContentToolCallContent:
    return ContentToolCallContent(type="content", content=TextContentBlock(type="text", text=text))
