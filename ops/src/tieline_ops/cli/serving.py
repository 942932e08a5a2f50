"""`tieline serve`: functions of a Python module become a remote, until Ctrl-C or until somebody takes its name over."""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import signal
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tieline import Remote

from tieline_ops.cli import output, reach, safe
from tieline_ops.cli.codes import Exit, Problem
from tieline_ops.cli.contexts import Place


async def serve(where: Place, user: str, spec: str, name: str) -> int:
    remote = _remote(spec, name)
    async with reach.client(where, user) as client, client.serve(remote) as served:
        for refused in served.refused:
            output.note(
                f"refused: {refused.get('name')}: {refused.get('error')} {refused.get('pointer') or ''}"
            )
        if not served.functions:
            raise Problem(f"no function of {remote.name} was taken", Exit.FAILED)
        output.note(f"{remote.name} serves {', '.join(served.functions)}; Ctrl-C ends it")
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with asyncio.TaskGroup() as group:
            waiting = [
                group.create_task(stop.wait(), name="Ctrl-C"),
                group.create_task(served.replaced.wait(), name="taken over"),
            ]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
    if served.replaced.is_set():
        raise Problem(f"somebody else serves {remote.name} now", Exit.FAILED)
    return Exit.OK


def _remote(spec: str, name: str) -> Remote:
    """The remote that a `module:names` describes. Raises Problem."""
    path, _, names = spec.partition(":")
    module = _module(path)
    wanted = [one for one in names.split(",") if one]
    found = {one: getattr(module, one, None) for one in wanted} or _own(module)
    if len(found) == 1 and isinstance(only := next(iter(found.values())), Remote):
        if name and name != only.name:
            raise Problem(f"--name: the Remote in {path} is called {only.name}", Exit.USAGE)
        return only
    remote = Remote(name or path.rpartition(".")[2].replace("_", "-"))
    for one, function in found.items():
        if not inspect.isroutine(function):
            raise Problem(f"{path} has no function {one!r}", Exit.NOT_FOUND)
        try:
            remote.function(_told(one, function), name=one)
        except (TypeError, ValueError, NameError) as exc:
            raise Problem(f"{path}:{one} cannot be offered: {exc}", Exit.USAGE) from exc
    if not found:
        raise Problem(f"{path} has no functions of its own", Exit.NOT_FOUND)
    return remote


def _module(path: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")  # what lies here may be served, as with `python -m`
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as exc:
        if exc.name and path.startswith(exc.name):
            raise Problem(f"there is no module {path!r} here", Exit.NOT_FOUND) from exc
        raise Problem(f"{path} cannot be imported: {exc}", Exit.FAILED) from exc
    except Exception as exc:
        raise Problem(f"{path} cannot be imported: {type(exc).__name__}: {exc}", Exit.FAILED) from exc


def _own(module: ModuleType) -> dict[str, Any]:
    """The public functions that a module defines itself, or the one Remote that it made."""
    remotes = {name: value for name, value in vars(module).items() if isinstance(value, Remote)}
    if len(remotes) == 1:
        return remotes
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }


def _told(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; each call of it is a line for whoever serves it."""

    def said(began: float, outcome: str, args: dict[str, Any]) -> None:
        shown = safe.cut(safe.jsoned(args), 60)
        output.note(
            f"{time.strftime('%H:%M:%S')}  {name} {shown}  {outcome}  {(time.monotonic() - began) * 1000:.0f} ms"
        )

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def waits(**args: Any) -> Any:
            began = time.monotonic()
            try:
                result = await function(**args)
            except BaseException as exc:
                said(began, type(exc).__name__, args)
                raise
            said(began, "ok", args)
            return result

        return waits

    @functools.wraps(function)
    def works(**args: Any) -> Any:
        began = time.monotonic()
        try:
            result = function(**args)
        except BaseException as exc:
            said(began, type(exc).__name__, args)
            raise
        said(began, "ok", args)
        return result

    return works
