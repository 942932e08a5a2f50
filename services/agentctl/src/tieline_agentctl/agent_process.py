"""The agent's process: started in a session and group of its own, read line by line, ended with all it started.

Knows nothing of ACP: lines in, lines out, stderr in a ring, an exit code.
"""

import asyncio
import os
import re
import signal
import subprocess
from asyncio.streams import FlowControlMixin
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import PurePath

import structlog

from tieline_agentctl import groups

log = structlog.get_logger()

STDERR_LINES = 50
_STDERR_LINE_BYTES = 8 * 1024
_READ_AHEAD = 1024 * 1024
_LONGEST_LINE = (
    256 * 1024 * 1024
)  # ACP has no bound; this one only keeps a runaway agent from taking the memory
_DRAIN = 1.0  # after its exit the agent's pipe may stay open in a child that left the session
_TERM_GRACE = 2.0
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


class AgentProcess:
    """One run of the agent. `close` when nobody will read it any more."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._stdout = asyncio.StreamReader(_READ_AHEAD)
        self._stderr = asyncio.StreamReader(_READ_AHEAD)
        self._stdin: asyncio.StreamWriter
        self._pipes: list[asyncio.BaseTransport] = []
        self._ring: deque[str] = deque(maxlen=STDERR_LINES)
        self._writing = asyncio.Lock()
        self._reading: asyncio.Timeout | None = None
        self._gone = asyncio.Event()
        self.output_ended = asyncio.Event()

    @classmethod
    async def start(cls, argv: Sequence[str], cwd: PurePath, env: Mapping[str, str]) -> "AgentProcess":
        """OSError when there is no such command."""
        self = cls(_spawned(argv, cwd, env))
        await self._connect()
        return self

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(self.pid)
        loop.add_reader(self._pidfd, self._ended)
        for reader, pipe in ((self._stdout, self._process.stdout), (self._stderr, self._process.stderr)):
            transport, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe)
            self._pipes.append(transport)
        write, protocol = await loop.connect_write_pipe(FlowControlMixin, self._process.stdin)
        self._stdin = asyncio.StreamWriter(write, protocol, None, loop)
        self._pipes.append(write)

    def _ended(self) -> None:
        self._process.wait()
        self._forget_pidfd()
        self._gone.set()

    def _forget_pidfd(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def close(self) -> None:
        """Let go of its pipes."""
        self._forget_pidfd()
        for pipe in self._pipes:
            pipe.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128 + the signal's number when a signal ended it, as shells say it."""
        code = self._process.returncode
        return code if code is None or code >= 0 else 128 - code

    @property
    def stderr(self) -> list[str]:
        """The last lines of stderr, newest last."""
        return list(self._ring)

    async def write(self, line: bytes) -> None:
        """Write one line to the agent's stdin; ConnectionError when nobody reads it."""
        async with self._writing:
            self._stdin.write(line + b"\n")
            await self._stdin.drain()

    async def line(self) -> bytes | None:
        """The next line of its stdout, however long; None at the end."""
        parts: list[bytes] = []
        size = 0
        while True:
            try:
                async with asyncio.timeout(_DRAIN if self.exit_code is not None else None) as self._reading:
                    part = await self._stdout.readuntil(b"\n")
            except asyncio.LimitOverrunError as overrun:
                part = await self._stdout.readexactly(overrun.consumed)
            except asyncio.IncompleteReadError as end:
                part = end.partial
                if not part and not parts:
                    self.output_ended.set()
                    return None
                return b"".join([*parts, part])
            except TimeoutError:
                self.output_ended.set()
                return None
            size += len(part)
            if size <= _LONGEST_LINE:
                parts.append(part)
            else:
                parts.clear()
            if part.endswith(b"\n"):
                if size <= _LONGEST_LINE:
                    return b"".join(parts) if len(parts) != 1 else part
                log.error("a line of the agent is too long and is lost", bytes=size, limit=_LONGEST_LINE)
                parts, size = [], 0

    async def read_stderr(self) -> None:
        """Keep reading stderr, so that the agent never waits for it; ends with the pipe."""
        rest = b""
        while chunk := await self._stderr.read(64 * 1024):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines[-STDERR_LINES:]:
                self._keep(line)
            if len(rest) > _STDERR_LINE_BYTES:
                self._keep(rest)
                rest = b""
        if rest:
            self._keep(rest)

    def _keep(self, line: bytes) -> None:
        text = _ANSI.sub("", line[:_STDERR_LINE_BYTES].decode("utf-8", "replace")).rstrip("\r")
        if text:
            self._ring.append(text)

    async def exited(self) -> int:
        """Wait for its end; children that it left behind are ended too. Returns the exit code."""
        await self._gone.wait()
        if self._reading is not None:
            try:
                self._reading.reschedule(asyncio.get_running_loop().time() + _DRAIN)
            except RuntimeError:
                pass  # nobody is reading at this moment; the next read has the limit from its start
        await groups.end_session(self.pid, grace=_TERM_GRACE)
        code = self.exit_code
        return -1 if code is None else code

    async def stop(self, grace: float) -> None:
        """Close its stdin, then SIGTERM, then SIGKILL to the whole session. Safe to call more than once."""
        self._stdin.close()
        if not await self._gone_within(grace):
            groups.signal_session(self.pid, signal.SIGTERM)
            groups.signal_session(self.pid, signal.SIGCONT)
            if not await self._gone_within(_TERM_GRACE):
                groups.signal_session(self.pid, signal.SIGKILL)
                await self._gone.wait()
        await groups.end_session(self.pid, grace=_TERM_GRACE)

    async def _gone_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._gone.wait()
        except TimeoutError:
            return False
        return True


def _spawned(argv: Sequence[str], cwd: PurePath, env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    # The loop's own subprocesses leave copies of the pipes in the child under uvloop: an agent that closes its stdout
    # would go unnoticed.
    return subprocess.Popen(
        argv,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
