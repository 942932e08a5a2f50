"""Pure: a user's remotes as tools of a coding agent, in the daemon's spelling: remotes are plugins.

`plugin_id` and `local_name` are the names of the remote and of its function as they are: an invocation leads to the
function without anything being taken apart. What the agent sees is `exposed_name` (tieline_protocol/naming.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tieline_protocol import jsontext, naming
from tieline_protocol.errors import BadMessage, Code, Refused, TielineError
from tieline_protocol.naming import Pair

# What MCP says of a tool of which nothing is known.
_HINTS = {
    "read_only_hint": False,
    "destructive_hint": True,
    "idempotent_hint": False,
    "open_world_hint": True,
}
_STRUCTURED = 262_144  # bytes; a larger result goes as text only, not twice


def tools(remotes: Iterable[dict[str, Any]], surface: object) -> tuple[list[dict[str, Any]], list[Pair]]:
    """The functions that the agent is offered, and those for which there was no room.

    `remotes` is what their registry answers; `surface` is where the agent wants to use them.
    """
    functions = {
        Pair(remote["remotename"], function["name"]): function
        for remote in remotes
        for function in remote["functions"]
    }
    chosen, dropped = naming.choose(functions)
    surfaces = [surface] if isinstance(surface, str) and surface else []
    offered = [
        {
            "plugin_id": pair.remote,
            "plugin_display_name": pair.remote,
            "local_name": pair.function,
            "exposed_name": name,
            "description": functions[pair].get("description", ""),
            "surfaces": surfaces,
            "input_schema": functions[pair]["parameters"],
            **_HINTS,
        }
        for name, pair in naming.names(chosen).items()
    ]
    return offered, dropped


class Snapshots:
    """What the agent is told, numbered: within a generation the revision rises with every change."""

    def __init__(self, generation: int) -> None:
        self._generation = str(generation)
        self._revision = 0
        self._tools: list[dict[str, Any]] | None = None

    def of(self, tools: list[dict[str, Any]]) -> dict[str, Any]:
        """The answer to `mcp.list_plugin_tools`."""
        if tools != self._tools:
            self._revision += 1
            self._tools = tools
        return {"generation": self._generation, "revision": self._revision, "tools": tools}


class Invocation(NamedTuple):
    """A tool that the agent calls."""

    pair: Pair
    arguments: Any


def invocation(payload: dict[str, Any], remotes: Iterable[str]) -> Invocation:
    """What `mcp.invoke_plugin_tool` means. Raises Refused where it is no function of these remotes."""
    remote, function = payload.get("plugin_id"), payload.get("local_name")
    if not isinstance(remote, str) or not isinstance(function, str):
        raise Refused(Code.BAD_REQUEST, "plugin_id and local_name must be strings")
    if remote not in remotes:
        raise Refused(Code.NOT_FOUND, f"there is no remote {remote!r}")
    arguments = payload.get("arguments")
    return Invocation(Pair(remote, function), {} if arguments is None else arguments)


def succeeded(result: Any) -> dict[str, Any]:
    """What the agent reads of a result: a text as it is, everything else as JSON; an object is there as such too."""
    try:
        raw = jsontext.dumps(result)
    except BadMessage as exc:  # what was read may be nested deeper than what can be written
        return failed(Refused(Code.INTERNAL, f"the result {exc.message}"))
    if isinstance(result, str) and result:
        return {"text": result, "is_error": False}
    reply: dict[str, Any] = {"text": raw.decode(), "is_error": False}
    if isinstance(result, dict) and len(raw) <= _STRUCTURED:
        reply["structured_content"] = result
    return reply


def failed(exc: TielineError) -> dict[str, Any]:
    """What the agent reads of a call that gave no result: a text, so that it may try again or go on."""
    return {"text": f"error: {exc.code}: {exc.message}", "is_error": True}
