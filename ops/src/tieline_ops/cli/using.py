"""The work of the shorter commands in `use`: sessions opened and closed, remotes called."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tieline_ops.cli import arguments, describe, output, reach, safe
from tieline_ops.cli.codes import Exit, Problem
from tieline_ops.cli.contexts import Place
from tieline_ops.cli.output import Format

if TYPE_CHECKING:
    from tieline import Client


async def found(client: Client, wanted: str) -> str:
    """The id of the user's session that is meant: by id, by the beginning of it, or by title. Raises Problem."""
    known: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        page = await client.request("session.list", {"limit": 200, **({"after": after} if after else {})})
        known += page["sessions"]
        if not (after := page.get("next")):
            break
    matching = describe.meant(
        known, wanted, lambda one: (one["session_id"], one["title"], one["state"] not in ("closed", "failed"))
    )
    if not matching:
        raise Problem(
            f"{client.user_id} has no session {wanted!r}", Exit.NOT_FOUND, "`tieline sessions` lists them"
        )
    if len(matching) > 1:
        several = ", ".join(one["session_id"] for one in matching[:4])
        raise Problem(f"{wanted!r} may be any of {len(matching)} sessions: {several}", Exit.USAGE)
    return str(matching[0]["session_id"])


async def open_session(where: Place, user: str, payload: dict[str, Any], format: Format) -> None:
    async with reach.client(where, user) as client:
        told = await client.request("session.open", payload)
    if format in (Format.JSON, Format.YAML):
        output.value(format, {"session": told["session_id"], "state": told["state"]})
    else:
        output.lines([told["session_id"]])


async def close_session(where: Place, user: str, wanted: str) -> None:
    async with reach.client(where, user) as client:
        session = await found(client, wanted)
        await client.request("session.close", {"session_id": session})
    output.note(f"{session} is closed")


async def call(
    where: Place, user: str, remote: str, function: str, words: list[str], timeout: float, format: Format
) -> None:
    async with reach.client(where, user) as client:
        listed = (await client.request("remote-list"))["remotes"]
        schema, usage = _function(listed, remote, function)
        args = arguments.parsed(words, schema)
        try:
            result = await client.call(
                remote, function, args, timeout_ms=max(int(timeout * 1000), 1), on_progress=_progress
            )
        except Exception as exc:
            if getattr(exc, "code", "") == "invalid_arguments":
                output.note(f"usage: tieline call {remote} {usage}")
            raise
    if isinstance(result, str) and format in (Format.TABLE, Format.WIDE):
        text = safe.block(result) if sys.stdout.isatty() else result
        output.write(text if text.endswith("\n") else text + "\n")
    else:
        output.value(Format.YAML if format is Format.YAML else Format.JSON, result)


def _function(listed: list[dict[str, Any]], remote: str, function: str) -> tuple[dict[str, Any], str]:
    """The schema of a function and how it is called. Raises Problem."""
    names = [str(one["remotename"]) for one in listed]
    if remote not in names:
        raise Problem(
            f"no remote {remote!r} is connected", Exit.NOT_FOUND, f"there are: {', '.join(names) or 'none'}"
        )
    functions = next(one["functions"] for one in listed if one["remotename"] == remote)
    for one in functions:
        if one["name"] == function:
            return one.get("parameters") or {}, arguments.usage(one)
    usages = "\n".join(arguments.usage(one) for one in functions)
    raise Problem(f"{remote} has no function {function!r}", Exit.NOT_FOUND, usages)


def _progress(told: dict[str, Any]) -> None:
    parts = [str(told["message"])] if "message" in told else []
    if "progress" in told:
        parts.append(f"{told['progress']:g}" + (f" of {told['total']:g}" if "total" in told else ""))
    output.note("… " + ", ".join(parts))
