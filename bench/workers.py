"""Processes that take part in a measurement: told what to do, and answering, one JSON object a line.

Each part of a measurement (source, sink, owner, a baseline) runs as a process of its own, so that what is measured
shares an event loop with nothing else. Times in answers are CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import uvloop

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 60.0


class BenchError(Exception):
    """A measurement that cannot be trusted: something was lost, was late or ended."""


class Worker:
    """A worker process. `send` and `wait` are apart, so that several can be at work at once."""

    def __init__(self, module: str, log: Path) -> None:
        self.module = module
        self._log = log
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,
            )
        self.pid = self._process.pid
        self._unread = b""

    def give_way(self) -> None:
        """From now on take only what others leave of the machine: who stands for a far machine is no burden here."""
        os.sched_setscheduler(self.pid, os.SCHED_IDLE, os.sched_param(0))

    def send(self, do: str, **facts: Any) -> None:
        """Give an order; its answer must be fetched with `wait` before the next one."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **facts}).encode() + b"\n")
        self._process.stdin.flush()

    def wait(self, timeout: float = PATIENCE) -> dict[str, Any]:
        """The answer to the last order. Raises BenchError."""
        assert self._process.stdout is not None
        until = time.monotonic() + timeout
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            left = until - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise BenchError(f"{self.module} did not answer within {timeout:g} s\n{self.log_tail()}")
            data = os.read(descriptor, 65_536)
            if not data:
                raise BenchError(f"{self.module} ended\n{self.log_tail()}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchError(f"{self.module}: {answer['error']}")
        return answer

    def call(self, do: str, **facts: Any) -> dict[str, Any]:
        self.send(do, **facts)
        return self.wait()

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-2_000:]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # it ends at the end of its input
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


@contextlib.contextmanager
def worker(module: str, logs: Path) -> Iterator[Worker]:
    """A worker that ends with the block."""
    started = Worker(module, logs / f"{module}.log")
    try:
        yield started
    finally:
        started.close()


def answer(facts: Mapping[str, Any]) -> None:
    """Answer the order under way."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def serve(handlers: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
    """The life of a worker that blocks: one order after the other until there are no more."""
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer(handlers[order.pop("do")](**order))
        except (BenchError, OSError) as exc:
            answer({"error": f"{type(exc).__name__}: {exc}"})


def serve_async(main: Callable[[], contextlib.AbstractAsyncContextManager[Mapping[str, Handler]]]) -> None:
    """The same for a worker with an event loop; between orders its loop goes on."""
    uvloop.run(_serve(main))


Handler = Callable[..., Awaitable[dict[str, Any]]]


async def _serve(main: Callable[[], contextlib.AbstractAsyncContextManager[Mapping[str, Handler]]]) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with main() as handlers:
        while line := await reader.readline():
            order = json.loads(line)
            try:
                answer(await handlers[order.pop("do")](**order))
            except (BenchError, OSError, TimeoutError) as exc:
                answer({"error": f"{type(exc).__name__}: {exc}"})
