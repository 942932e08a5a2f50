"""What the command writes: tables, JSON, YAML, lines. Colour on a terminal only; a pipe that nobody reads ends it.

What goes wrong is said on standard error, in one line, with an exit code that `docs/cli.md` lists.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, NoReturn, TextIO

from tieline_ops.cli import safe, shapes
from tieline_ops.cli.codes import Exit, Problem, of

_ENDS = (signal.SIGTERM, signal.SIGHUP)


class Format(StrEnum):
    """How lists and single things are written."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


def colour(stream: TextIO | None = None) -> bool:
    """Whether colours are wanted: on a terminal, unless NO_COLOR is set or the terminal is dumb."""
    stream = stream or sys.stdout
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width() -> int:
    """Where lines of a table are cut: at the edge of a terminal, else nowhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def write(text: str) -> None:
    """Write and let it be seen at once. Raises BrokenPipeError where nobody reads any more.

    To the last byte: Python's own, unbuffered, drops what a pipe did not take at once.
    """
    sys.stdout.flush()
    left = memoryview(text.encode("utf-8", "backslashreplace"))
    descriptor = sys.stdout.fileno()
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:  # somebody who shares the terminal made it so
            select.select([], [descriptor], [])


def lines(told: Iterable[str]) -> None:
    """Write whole lines."""
    write("".join(f"{line}\n" for line in told))


def rows(format: Format, columns: Sequence[shapes.Column], found: list[dict[str, Any]], none: str) -> None:
    """A list. `none` says on standard error what it means that there is nothing."""
    if format in (Format.JSON, Format.YAML):
        value(format, found)
        return
    lines(
        shapes.table(
            columns,
            found,
            wide=format is Format.WIDE,
            width=0 if format is Format.WIDE else width(),
            colour=colour(),
        )
    )
    if not found:
        note(none)


def value(format: Format, thing: Any) -> None:
    """One value, for programs."""
    if format is Format.YAML:
        import yaml

        dumped = yaml.safe_dump(_simple(thing), sort_keys=False, allow_unicode=False, width=1_000)
        write(dumped.removesuffix("...\n"))
    else:
        write(safe.jsoned(thing, 2) + "\n")


def _simple(thing: Any) -> Any:
    """Without what YAML would write with a tag of Python's own."""
    if isinstance(thing, dict):
        return {str(name): _simple(item) for name, item in thing.items()}
    if isinstance(thing, list | tuple):
        return [_simple(item) for item in thing]
    return thing if thing is None or isinstance(thing, bool | int | float) else str(thing)


def note(text: str) -> None:
    """Something for a person to know, beside the output."""
    if text:
        with contextlib.suppress(OSError):
            shade = "dim" if colour(sys.stderr) else ""
            sys.stderr.write(shapes.styled(safe.block(text), shade) + "\n")
            sys.stderr.flush()


def run(work: Callable[[], Coroutine[Any, Any, int | None]]) -> NoReturn:
    """Do a command's work and end with its exit code, whatever happens to it."""
    sys.exit(_ended(work))


@contextlib.contextmanager
def restoring() -> Iterator[None]:
    """For what changes the terminal and sets it right where it is left: SIGTERM and SIGHUP leave it too. Once."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def end() -> None:
        for number in _ENDS:
            loop.remove_signal_handler(number)
        task.cancel()

    for number in _ENDS:
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        for number in _ENDS:
            loop.remove_signal_handler(number)


def _ended(work: Callable[[], Coroutine[Any, Any, int | None]]) -> int:
    try:
        return asyncio.run(work()) or Exit.OK
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except asyncio.CancelledError:
        return Exit.TERMINATED
    except BrokenPipeError:
        return nobody_reads()
    except BaseExceptionGroup as group:
        return failed(_first(group))
    except Exception as exc:  # noqa: BLE001  # a person gets a line, not a traceback
        return failed(exc)


def failed(exc: BaseException) -> int:
    """Say why a command ends, and with which code."""
    if isinstance(exc, BrokenPipeError):
        return nobody_reads()
    if isinstance(exc, KeyboardInterrupt | asyncio.CancelledError):
        return Exit.INTERRUPTED
    if isinstance(exc, Problem):
        _complain(exc.message, exc.hint)
        return exc.exit
    if isinstance(exc, TimeoutError):
        _complain("it took too long")
        return Exit.TIMEOUT
    code, message = getattr(exc, "code", None), getattr(exc, "message", None)
    if code is not None and message is not None:  # of tieline or of tieline_protocol
        _complain(f"{code}: {message}")
        return of(str(code))
    if os.environ.get("TIELINE_DEBUG"):
        raise exc
    if isinstance(exc, OSError) and exc.strerror:
        _complain(": ".join(part for part in (str(exc.filename or ""), exc.strerror) if part))
        return Exit.FAILED
    _complain(f"{type(exc).__name__}: {exc}", "TIELINE_DEBUG=1 shows where")
    return Exit.FAILED


def _complain(message: str, hint: str = "") -> None:
    with contextlib.suppress(OSError):
        bad = "bad" if colour(sys.stderr) else ""
        sys.stderr.write(f"{shapes.styled('tieline:', bad)} {safe.line(message)}\n")
        for row in hint.splitlines():
            sys.stderr.write(f"         {safe.line(row)}\n")
        sys.stderr.flush()


def nobody_reads() -> int:
    """End without a word: what is left to write goes nowhere, also what Python writes when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.BROKEN_PIPE


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    exc: BaseException = group
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc
