"""The command as people run it: a process of its own, with the files and the environment of nobody else."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.nats_server import die_with_parent

PATIENCE = 20.0  # s; nothing takes so long but on a machine that is busy with other tests
_TOLD = ("TIELINE_", "XDG_", "NO_COLOR", "OPENAI_", "COLUMNS", "LINES")


@dataclass(frozen=True)
class Done:
    """How a command ended and what it wrote."""

    code: int
    text: str
    errors: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


class Command:
    """`tieline("sessions", "-o", "json")` runs it. An unexpected exit code fails the test and shows all."""

    def __init__(self, home: Path, env: Mapping[str, str] | None = None) -> None:
        self.home = home
        present = {name: value for name, value in os.environ.items() if not name.startswith(_TOLD)}
        # As it is where people install it: what Python has compiled once it finds again.
        present.pop("PYTHONDONTWRITEBYTECODE", None)
        path = f"{Path(sys.executable).parent}:{present.get('PATH', '')}"
        cache = {"PYTHONPYCACHEPREFIX": str(home / "cache")}
        self.env = {**present, **cache, "HOME": str(home), "PATH": path, "TERM": "xterm", **(env or {})}

    def with_env(self, **env: str) -> Command:
        """The same with more in its environment."""
        return Command(self.home, {**self.env, **env})

    @staticmethod
    def argv(*args: str) -> list[str]:
        return [sys.executable, "-m", "tieline_ops", *args]

    def __call__(self, *args: str, code: int | None = 0, input: str = "", timeout: float = PATIENCE) -> Done:
        ended = subprocess.run(
            self.argv(*args),
            input=input.encode(),
            capture_output=True,
            env=self.env,
            cwd=self.home,
            timeout=timeout,
            check=False,
        )
        done = Done(ended.returncode, ended.stdout.decode(), ended.stderr.decode())
        assert code is None or done.code == code, f"tieline {' '.join(args)} ended with {done}"
        return done

    def sh(self, line: str, *, code: int | None = 0) -> Done:
        """A line of a shell in which the command is `tieline`."""
        ended = subprocess.run(
            ["bash", "-c", line],
            capture_output=True,
            env=self.env,
            cwd=self.home,
            timeout=PATIENCE,
            check=False,
        )
        done = Done(ended.returncode, ended.stdout.decode(), ended.stderr.decode())
        assert code is None or done.code == code, f"{line} ended with {done}"
        return done

    @contextlib.contextmanager
    def started(self, *args: str) -> Iterator[Started]:
        """The command while it goes on; it gets Ctrl-C when the block is left, and has ended after it."""
        process = subprocess.Popen(
            self.argv(*args),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.env,
            cwd=self.home,
            preexec_fn=die_with_parent,
        )
        assert process.stdout is not None
        try:
            yield Started(process, process.stdout.fileno())
        finally:
            _end(process)
            process.stdout.close()

    @contextlib.contextmanager
    def terminal(self, *args: str, rows: int = 24, columns: int = 90) -> Iterator[Terminal]:
        """The command on a terminal of its own."""
        ours, theirs = pty.openpty()
        _resize(theirs, rows, columns)
        process = subprocess.Popen(
            self.argv(*args),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=self.env,
            cwd=self.home,
            start_new_session=True,
            preexec_fn=_with_terminal,
        )
        os.close(theirs)
        try:
            yield Terminal(process, ours)
        finally:
            _end(process)
            os.close(ours)


def _with_terminal() -> None:
    die_with_parent()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


class Started:
    """A command that goes on. `heard` is all that it has written."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self.heard = b""
        self.descriptor = descriptor

    def until(self, wanted: bytes, patience: float = PATIENCE) -> bytes:
        """Read until it has written this; returns all that it has."""
        end = time.monotonic() + patience
        while wanted not in self.heard:
            left = end - time.monotonic()
            assert left > 0, f"waited for {wanted!r}, heard {self.heard[-2_000:]!r}"
            if select.select([self.descriptor], [], [], left)[0]:
                try:
                    read = os.read(self.descriptor, 65_536)
                except OSError:  # a terminal whose other end is gone
                    read = b""
                assert read, f"it ended with {self.process.wait()} before {wanted!r}: {self.heard[-2_000:]!r}"
                self.heard += read
        return self.heard

    def ended(self, patience: float = PATIENCE) -> int:
        """Its exit code, once it has one; what it still writes is read."""
        end = time.monotonic() + patience
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it does not end: {self.heard[-2_000:]!r}"
            if select.select([self.descriptor], [], [], 0.02)[0]:
                with contextlib.suppress(OSError):
                    self.heard += os.read(self.descriptor, 65_536)
        return self.process.wait()


class Terminal(Started):
    """A command on a terminal."""

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        _resize(self.descriptor, rows, columns)
        self.process.send_signal(signal.SIGWINCH)


def _resize(descriptor: int, rows: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
