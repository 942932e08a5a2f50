"""Pure: the tool calls of one ACP session and their events.

An update tells only what changed, an event tells everything; so what was said of a tool is merged and kept, of
the newest `MOST_TOOLS` ones.
"""

from typing import Any

from tieline_agentctl.acp_shapes import content_block, in_meta, mapping, objects, present, text
from tieline_agentctl.events import event
from tieline_agentctl.normalized import normalized

MOST_TOOLS = 512
_STATUS = {"completed": "complete", "failed": "error"}
_OPEN = ("pending", "in_progress")
_TOLD = ("toolCallId", "title", "kind", "rawInput", "rawOutput", "locations", "content", "_meta")


class ToolCalls:
    """By tool call id, the least recently mentioned first."""

    def __init__(self) -> None:
        self._tools: dict[str, dict[str, Any]] = {}

    def event(self, session_id: str, update: dict[str, Any]) -> dict[str, Any]:
        """The event of a `tool_call` or `tool_call_update`."""
        tool = self.known(update)
        status = text(update.get("status"))
        tool["status"] = status or tool.get("status") or "in_progress"
        shared = {
            "session_id": session_id,
            "tool_call_id": text(update.get("toolCallId")),
            "tool_title": text(update.get("title")),
            "normalized": normalized(tool),
            "tool_call_contents": [_content(item) for item in objects(update.get("content"))],
            "parent_tool_call_id": in_meta(update, "parentToolCallId", "parentToolUseId"),
        }
        if update.get("sessionUpdate") == "tool_call":
            return event("tool_call", tool_name=_name(tool), tool_status=tool["status"], **shared)
        return event("tool_update", tool_status=_STATUS.get(status, status), **shared)

    def known(self, update: dict[str, Any]) -> dict[str, Any]:
        """Remember what an update or a permission request says of a tool call; all that is known of it by now."""
        tool_call_id = text(update.get("toolCallId"))
        tool = self._tools.pop(tool_call_id, {})
        tool.update({name: update[name] for name in _TOLD if update.get(name) is not None})
        self._tools[tool_call_id] = tool
        if len(self._tools) > MOST_TOOLS:
            del self._tools[next(iter(self._tools))]
        return tool

    def knows(self, tool_call_id: str) -> bool:
        return tool_call_id in self._tools

    def announced(self, session_id: str, asked: dict[str, Any]) -> dict[str, Any]:
        """The `tool_call` event for a tool that the agent asks permission for before it tells of it."""
        tool = self.known(asked)
        tool["status"] = "pending"
        return event(
            "tool_call",
            session_id=session_id,
            tool_call_id=text(asked.get("toolCallId")),
            tool_name=_name(tool),
            tool_title=text(asked.get("title")),
            tool_status="pending_permission",
        )

    def cancelled(self, session_id: str, leave_detached: bool = False) -> list[dict[str, Any]]:
        """`tool_update` events that end the tools still open; `leave_detached` spares subagents."""
        events = []
        for tool_call_id, tool in self._tools.items():
            if tool.get("status") not in _OPEN:
                continue
            if leave_detached and normalized(tool)["kind"] == "subagent_task":
                continue
            tool["status"] = "cancelled"
            events.append(
                event(
                    "tool_update", session_id=session_id, tool_call_id=tool_call_id, tool_status="cancelled"
                )
            )
        return events


def _name(tool: dict[str, Any]) -> str:
    name = in_meta(tool, "toolName")
    return name if name.startswith("mcp__") else text(tool.get("kind")) or "other"


def _content(item: dict[str, Any]) -> dict[str, Any]:
    content = mapping(item.get("content"))
    found = {"type": text(item.get("type"))} | present(
        content=content_block(content) if content else None,
        path=text(item.get("path")),
        new_text=text(item.get("newText")),
        terminal_id=text(item.get("terminalId")),
    )
    if isinstance(item.get("oldText"), str):
        found["old_text"] = item["oldText"]
    return found
