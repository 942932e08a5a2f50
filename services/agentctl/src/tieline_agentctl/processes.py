"""Commands that run beside the agent: dev servers, set-up scripts. Each in a session of its own, ended whole."""

import asyncio
import os
import signal
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from pydantic import Field

from tieline_agentctl import clock, groups, workspace_frames
from tieline_agentctl.decode import TextDecoder
from tieline_agentctl.hub import Hub
from tieline_agentctl.ring import Ring
from tieline_agentctl.scope import Scope
from tieline_agentctl.wall import now, now_ms
from tieline_agentctl.web import Args, BadRequest

log = structlog.get_logger()

CHUNK = 16 * 1024
INTERRUPT_GRACE = 2.0
SURVIVOR_GRACE = 0.25
DRAIN = 10.0


class Start(Args):
    session_id: str = Field(min_length=1)
    kind: str = Field(min_length=1)
    command: str = Field(min_length=1)
    script_name: str = ""
    working_dir: str = ""
    env: dict[str, str] = Field(default_factory=dict)
    buffer_max_bytes: int = 0


class Running:
    """One command, from its start until it is gone and its last output was told."""

    def __init__(self, start: Start, hub: Hub, buffer: int) -> None:
        self.id = str(uuid.uuid4())
        self.start = start
        self.status = "starting"
        self.exit_code: int | None = None
        self.started_at = self.updated_at = clock.nano(now())
        self.process: asyncio.subprocess.Process | None = None
        self.done = asyncio.Event()
        self._hurry = asyncio.Event()
        self._hub = hub
        self._output: Ring[dict[str, str]] = Ring(buffer)

    def info(self, *, output: bool = False) -> dict[str, Any]:
        info: dict[str, Any] = {"id": self.id, "session_id": self.start.session_id, "kind": self.start.kind}
        if self.start.script_name:
            info["script_name"] = self.start.script_name
        info |= {"command": self.start.command, "working_dir": self.start.working_dir, "status": self.status}
        if self.exit_code is not None:
            info["exit_code"] = self.exit_code
        info |= {"started_at": self.started_at, "updated_at": self.updated_at}
        if output:
            info["output"] = list(self._output)
        return info

    async def launch(self, env: Mapping[str, str]) -> None:
        self._tell("starting")
        self.process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-lc",
            self.start.command,
            cwd=self.start.working_dir or None,
            env={**env, **self.start.env},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._tell("running")

    async def follow(self, forget: Callable[[], object]) -> None:
        """Until the end: all output first, then it is forgotten, then the final status is told."""
        process = self.process
        assert process is not None
        assert process.stdout is not None
        assert process.stderr is not None
        pumps = [
            asyncio.create_task(self._pump(process.stdout, "stdout"), name="stdout"),
            asyncio.create_task(self._pump(process.stderr, "stderr"), name="stderr"),
        ]
        try:
            code = await process.wait()
            await groups.end_session(process.pid, signal.SIGTERM, SURVIVOR_GRACE)
            await self._drained(pumps)
            self.exit_code = code if code >= 0 else -1
            forget()
            self._tell("exited" if code == 0 else "failed")
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.shield(self._end())
            await asyncio.wait(pumps)
            self.done.set()

    async def _drained(self, pumps: list[asyncio.Task[None]]) -> None:
        """Somebody who left the session may still hold the pipes: that is waited for, but not at the instance's end."""
        drained = asyncio.create_task(asyncio.wait(pumps), name="output ended")
        hurry = asyncio.create_task(self._hurry.wait(), name="instance ends")
        try:
            await asyncio.wait([drained, hurry], timeout=DRAIN, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([drained], timeout=SURVIVOR_GRACE)
        finally:
            drained.cancel()
            hurry.cancel()

    async def stop(self, *, whole: bool = False) -> None:
        """The wire interrupts only the leader; at the instance's end everybody is told, so that it is quick."""
        process = self.process
        if process is None or self.done.is_set():
            return
        if whole:
            self._hurry.set()
            groups.signal_session(process.pid, signal.SIGTERM)
        elif process.returncode is None:
            try:
                process.send_signal(signal.SIGINT)
            except ProcessLookupError:
                pass
        try:
            async with asyncio.timeout(INTERRUPT_GRACE):
                await process.wait()
        except TimeoutError:
            groups.signal_group(process.pid, signal.SIGKILL)
            groups.signal_session(process.pid, signal.SIGKILL)
        await self.done.wait()

    async def _end(self) -> None:
        assert self.process is not None
        groups.signal_session(self.process.pid, signal.SIGKILL)
        await self.process.wait()

    async def _pump(self, pipe: asyncio.StreamReader, stream: str) -> None:
        decoder = TextDecoder()
        while data := await pipe.read(CHUNK):
            await self._say(stream, decoder.feed(data))
        await self._say(stream, decoder.finish())

    async def _say(self, stream: str, text: str) -> None:
        if not text:
            return
        stamp = clock.nano(now())
        self._output.add({"stream": stream, "data": text, "timestamp": stamp}, len(text.encode()))
        output = {
            "session_id": self.start.session_id,
            "process_id": self.id,
            "kind": self.start.kind,
            "stream": stream,
            "data": text,
            "timestamp": stamp,
        }
        await self._hub.bulk(
            workspace_frames.frame("process_output", now_ms(), process_output=output), len(text)
        )

    def _tell(self, status: str) -> None:
        self.status = status
        self.updated_at = clock.nano(now())
        told: dict[str, Any] = {
            "session_id": self.start.session_id,
            "process_id": self.id,
            "kind": self.start.kind,
        }
        if self.start.script_name:
            told["script_name"] = self.start.script_name
        told |= {
            "command": self.start.command,
            "working_dir": self.start.working_dir,
            "status": status,
        }
        if self.exit_code is not None:
            told["exit_code"] = self.exit_code
        told["timestamp"] = self.updated_at
        self._hub.fact(workspace_frames.frame("process_status", now_ms(), process_status=told))


class Processes:
    """Those of one instance. One that has ended is forgotten at once; its end is only told on the stream."""

    def __init__(self, hub: Hub, env: Mapping[str, str], buffer: int) -> None:
        self._hub = hub
        self.env = dict(env)
        self._buffer = buffer
        self._running: dict[str, Running] = {}

    def __len__(self) -> int:
        return len(self._running)

    async def start(self, start: Start, tasks: Scope) -> Running:
        if start.working_dir and not os.path.isdir(start.working_dir):
            raise BadRequest(f"working_dir is not a directory: {start.working_dir}")
        running = Running(
            start, self._hub, start.buffer_max_bytes if start.buffer_max_bytes > 0 else self._buffer
        )
        try:
            await running.launch(self.env)
        except (OSError, ValueError) as exc:
            raise BadRequest(f"failed to start process: {exc}") from exc
        self._running[running.id] = running
        tasks.spawn(self._follow(running), f"process {running.id}")
        return running

    async def stop(self, process_id: str) -> None:
        """One that is not there is as stopped as can be."""
        running = self._running.get(process_id)
        if running is not None:
            await running.stop()

    async def stop_all(self) -> None:
        await asyncio.gather(*(running.stop(whole=True) for running in list(self._running.values())))

    def get(self, process_id: str) -> Running | None:
        return self._running.get(process_id)

    def all(self, session_id: str = "") -> list[Running]:
        return [one for one in self._running.values() if session_id in ("", one.start.session_id)]

    async def _follow(self, running: Running) -> None:
        try:
            await running.follow(lambda: self._running.pop(running.id, None))
        except OSError as exc:
            log.error("a process could not be followed", process_id=running.id, error=str(exc))
        finally:
            self._running.pop(running.id, None)
