"""Pure: sets whose whole state is an event of ours, told whenever it changes: open permissions, running processes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

MOST = 256  # the daemon lists at most 100 permissions; more than this is a peer that makes them up

_PERMISSION = (
    "request_id",
    "pending_id",
    "tool_call_id",
    "permission_title",
    "permission_options",
    "action_type",
    "action_details",
)
_PROCESS = ("process_id", "kind", "script_name", "command", "working_dir", "status")


def _asked(item: dict[str, Any]) -> dict[str, Any]:
    """A permission as the daemon lists it, in the words of its event."""
    kept: dict[str, Any] = {
        name: item[name] for name in ("request_id", "pending_id", "tool_call_id") if name in item
    }
    action = item.get("action")
    if isinstance(action, dict) and isinstance(action.get("type"), str):
        kept["action_type"] = action["type"]
        kept["action_details"] = {name: value for name, value in action.items() if name != "type"}
    return {
        **kept,
        "permission_title": item.get("title", ""),
        "permission_options": item.get("options") or [],
    }


class _Set:
    def __init__(self) -> None:
        self._items: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> list[dict[str, Any]]:
        return list(self._items.values())

    def clear(self) -> bool:
        """Whether that changed anything."""
        changed = bool(self._items)
        self._items.clear()
        return changed

    def restore(self, key: str, items: list[dict[str, Any]]) -> bool:
        """Make the set what it is said to be. Returns whether it is another one now."""
        before = self.items()
        self._items.clear()
        for item in items:
            if isinstance(id := item.get(key), str) and id:
                self._put(id, item)
        return self.items() != before

    def remove(self, key: object) -> bool:
        """Whether it was there."""
        return isinstance(key, str) and self._items.pop(key, None) is not None

    def _put(self, key: str, item: dict[str, Any]) -> bool:
        if self._items.get(key) == item:
            return False
        self._items[key] = item
        if len(self._items) > MOST:
            self._items.popitem(last=False)
        return True


class Permissions(_Set):
    """Decisions that the agent waits for, by `pending_id`."""

    def heard(self, type: str, value: dict[str, Any]) -> bool:
        """An event of the agent's. Returns whether the set is another one now."""
        pending = value.get("pending_id")
        if not isinstance(pending, str) or not pending:
            return False
        if type == "permission_request":
            return self._put(pending, {name: value[name] for name in _PERMISSION if name in value})
        return type == "permission_cancelled" and self.remove(pending)

    def listed(self, items: list[dict[str, Any]]) -> bool:
        """What the daemon says is open. Returns whether the set is another one now."""
        known = self._items
        return self.restore(
            "pending_id", [known.get(str(item.get("pending_id"))) or _asked(item) for item in items]
        )

    def event(self) -> dict[str, Any]:
        return {"type": "permissions", "open": self.items()}


class Processes(_Set):
    """Processes that run in the workspace, by `process_id`."""

    def heard(self, type: str, value: dict[str, Any]) -> bool:
        """A frame of the workspace's. Returns whether the set is another one now."""
        if type != "process_status":
            return False
        status = value.get("process_status")
        if not isinstance(status, dict):
            return False
        id = status.get("process_id")
        if not isinstance(id, str) or not id:
            return False
        if status.get("status") in ("starting", "running"):
            return self._put(id, {name: status[name] for name in _PROCESS if name in status})
        return self.remove(id)

    def event(self) -> dict[str, Any]:
        return {"type": "processes", "running": self.items()}

    def listed(self, items: list[dict[str, Any]]) -> bool:
        """What the daemon says there is. Returns whether the set is another one now."""
        running = [item for item in items if item.get("status") in ("starting", "running")]
        told = [{**item, "process_id": item.get("id")} for item in running]
        return self.restore(
            "process_id", [{name: item[name] for name in _PROCESS if name in item} for item in told]
        )
