"""Pure: which plugin tools an agent is offered: what the backend pushed, and what it answered when it was asked.

Both are snapshots with a generation and a revision. Of the same generation the higher revision counts, alone, so a tool
that was taken away is gone. Snapshots of different generations are put together; where names clash the answer wins,
since it was asked for just now.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SURFACES = {
    "task": "kanban-task",
    "task-title-pending": "kanban-task",
    "config": "configuration",
    "office": "office-task",
}  # by mode
_HINTS = {
    "read_only_hint": "readOnlyHint",
    "destructive_hint": "destructiveHint",
    "idempotent_hint": "idempotentHint",
    "open_world_hint": "openWorldHint",
}


class BadTools(Exception):
    """Not a snapshot of plugin tools."""


@dataclass(frozen=True, slots=True)
class PluginTool:
    """A tool of the backend: how the agent sees it, and how the backend knows it."""

    plugin_id: str
    local_name: str
    exposed_name: str
    surfaces: tuple[str, ...]
    shown: Mapping[str, Any]  # as MCP spells a tool

    def is_on(self, surface: str) -> bool:
        """A tool without surfaces is on all of them."""
        return not self.surfaces or surface in self.surfaces


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All tools of one source at one time."""

    generation: str | int = ""
    revision: int = 0
    tools: tuple[PluginTool, ...] = ()


def snapshot(payload: Any, *, lenient: bool = False) -> Snapshot:
    """A snapshot as it is on the wire; BadTools. `lenient` leaves out single tools that are malformed."""
    if not isinstance(payload, dict):
        raise BadTools("not a JSON object")
    generation, revision = payload.get("generation") or "", payload.get("revision") or 0
    if isinstance(generation, bool) or not isinstance(generation, str | int):
        raise BadTools("generation: not a string")
    if isinstance(revision, bool) or not isinstance(revision, int):
        raise BadTools("revision: not a whole number")
    given = payload.get("tools") or []
    if not isinstance(given, list):
        raise BadTools("tools: not a list")
    tools = []
    for at, item in enumerate(given):
        try:
            tools.append(_tool(item, f"tools.{at}"))
        except BadTools:
            if not lenient:
                raise
    return Snapshot(generation, revision, tuple(tools))


def _tool(item: Any, where: str) -> PluginTool:
    if not isinstance(item, dict):
        raise BadTools(f"{where}: not a JSON object")
    names = {}
    for name in ("plugin_id", "local_name", "exposed_name"):
        value = item.get(name)
        if not isinstance(value, str) or not value:
            raise BadTools(f"{where}.{name} is required")
        names[name] = value
    surfaces = item.get("surfaces") or []
    if not isinstance(surfaces, list):
        raise BadTools(f"{where}.surfaces: not a list")
    schema = item.get("input_schema") or {}
    if not isinstance(schema, dict):
        raise BadTools(f"{where}.input_schema: not a JSON object")
    shown: dict[str, Any] = {
        "name": names["exposed_name"],
        "description": _text(item.get("description")),
        "inputSchema": {**schema, "type": "object"},  # MCP allows nothing else at the top
        "annotations": {
            hint: item[name] for name, hint in _HINTS.items() if isinstance(item.get(name), bool)
        },
    }
    title, output = _text(item.get("plugin_display_name")), item.get("output_schema")
    if title:
        shown["annotations"]["title"] = title
    if isinstance(output, dict) and output.get("type") == "object":
        shown["outputSchema"] = output
    return PluginTool(**names, surfaces=tuple(str(one) for one in surfaces), shown=shown)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


@dataclass(slots=True)
class Catalogue:
    """What was pushed and what was answered last."""

    pushed: Snapshot | None = None
    answered: Snapshot | None = None

    def push(self, given: Snapshot) -> Snapshot:
        """The snapshot that holds from now on: an older one of the same generation changes nothing."""
        self.pushed = held = _newer(self.pushed, given)
        return held

    def answer(self, given: Snapshot) -> None:
        """The backend's answer to a question of ours."""
        self.answered = _newer(self.answered, given)

    def tools(self, surface: str) -> dict[str, PluginTool]:
        """By the name that the agent sees."""
        counted = [found for found in (self.pushed, self.answered) if found is not None]
        if len({found.generation for found in counted}) == 1:
            counted = [_newer(counted[0], counted[-1])]
        return {tool.exposed_name: tool for found in counted for tool in found.tools if tool.is_on(surface)}


def _newer(held: Snapshot | None, given: Snapshot) -> Snapshot:
    if held is None:
        return given
    older = given.generation == held.generation and given.revision < held.revision
    return held if older else given
