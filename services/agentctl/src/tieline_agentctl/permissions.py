"""Pure: the permissions that an agent waits for, and what is remembered of the finished ones.

A permission is open, then being answered (the answer is on its way to the agent), then finished. Answers are
told apart by code when they come late, twice or for nothing. Who writes to the agent and to the stream is not here.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from tieline_agentctl.acp_shapes import objects
from tieline_agentctl.redact import capped, redacted

MOST_OPEN = 100
TOMBSTONES = 256

NOT_FOUND = "permission_not_found"
STALE = "permission_stale"
ALREADY_RESOLVED = "permission_already_resolved"
IN_PROGRESS = "permission_resolution_in_progress"
NOT_OFFERED = "permission_option_not_offered"
DELIVERY_FAILED = "permission_delivery_failed"

_ACTION_TYPES = {"execute": "command", "edit": "file_write", "read": "file_read", "fetch": "network"}
_DETAILS = {
    "command": ("command", "cmd"),
    "cwd": ("cwd", "workdir", "work_dir"),
    "path": ("path", "file_path", "filePath", "abs_path"),
    "destination": ("destination", "url"),
    "server": ("server",),
    "tool": ("tool",),
}


class Refused(Exception):
    """An answer that cannot be given; `code` is one of the constants above."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class Permission:
    """A question of the agent. `rpc_id` is what its answer must carry."""

    request_id: str
    pending_id: str
    rpc_id: Any
    acp_session: str
    tool_call_id: str
    title: str
    options: list[dict[str, Any]]
    action_type: str
    description: str
    details: dict[str, str]
    was_redacted: bool
    created_at: str
    answering: bool = field(default=False)

    def offers(self, option_id: str) -> bool:
        return any(option["option_id"] == option_id for option in self.options)

    def kind_of(self, option_id: str) -> str:
        return next((str(option["kind"]) for option in self.options if option["option_id"] == option_id), "")

    def first_allowing(self) -> str:
        """The option that auto-approval takes: the first that allows, else the first; "" when none is offered."""
        for option in self.options:
            if str(option["kind"]).startswith("allow"):
                return str(option["option_id"])
        return str(self.options[0]["option_id"]) if self.options else ""


def from_agent(
    rpc_id: Any,
    params: dict[str, Any],
    tool: dict[str, Any],
    *,
    request_id: str,
    nanoseconds: int,
    created_at: str,
) -> Permission:
    """Read `session/request_permission`; `tool` is what is known of the tool call by now."""
    session = _str(params.get("sessionId"))
    tool_call_id = _str(tool.get("toolCallId"))
    options = [
        _without_empty(
            option_id=_str(option.get("optionId")),
            name=_str(option.get("name")),
            kind=_str(option.get("kind")),
            metadata=option.get("_meta"),
        )
        for option in objects(params.get("options"))
    ]
    raw = tool.get("rawInput")
    raw = raw if isinstance(raw, dict) else {}
    details, any_redacted = _details(raw)
    title, title_redacted = redacted(_str(tool.get("title")))
    description, description_redacted = redacted(_str(raw.get("description")))
    return Permission(
        request_id=request_id,
        pending_id=f"{session}-{tool_call_id}-{nanoseconds}",
        rpc_id=rpc_id,
        acp_session=session,
        tool_call_id=tool_call_id,
        title=capped(title),
        options=[{"option_id": "", "name": "", "kind": "", **option} for option in options],
        action_type=_action_type(tool, raw),
        description=capped(description),
        details=details,
        was_redacted=any_redacted or title_redacted or description_redacted,
        created_at=created_at,
    )


def _action_type(tool: dict[str, Any], raw: dict[str, Any]) -> str:
    if ("server" in raw and "tool" in raw) or _str(tool.get("title")).startswith("mcp__"):
        return "mcp_tool"
    return _ACTION_TYPES.get(_str(tool.get("kind")), "other")


def _details(raw: dict[str, Any]) -> tuple[dict[str, str], bool]:
    details: dict[str, str] = {}
    any_redacted = False
    for name, spellings in _DETAILS.items():
        for spelling in spellings:
            value = raw.get(spelling)
            if isinstance(value, list):
                value = " ".join(part for part in value if isinstance(part, str))
            if isinstance(value, str) and value:
                clean, found = redacted(value)
                details[name] = capped(clean)
                any_redacted = any_redacted or found
                break
    return details, any_redacted


def _str(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _without_empty(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value}


class Permissions:
    """The open ones, by request id, and the codes of the last finished ones."""

    def __init__(self) -> None:
        self._open: dict[str, Permission] = {}
        self._finished: OrderedDict[str, str] = OrderedDict()

    def opened(self, permission: Permission) -> bool:
        """False when too many are open already."""
        if len(self._open) >= MOST_OPEN:
            return False
        self._open[permission.request_id] = permission
        return True

    def with_pending(self, pending_id: str) -> Permission:
        """The open permission of this pending id; NOT_FOUND."""
        for permission in self._open.values():
            if permission.pending_id == pending_id:
                return permission
        raise Refused(NOT_FOUND)

    def claim(self, request_id: str, pending_id: str, option_id: str | None) -> Permission:
        """Reserve it for one answer. `option_id` None cancels. Any of the codes but DELIVERY_FAILED."""
        permission = self._open.get(request_id)
        if permission is None:
            raise Refused(self._finished.get(request_id, NOT_FOUND))
        if permission.pending_id != pending_id:
            raise Refused(STALE)
        if permission.answering:
            raise Refused(IN_PROGRESS)
        if option_id is not None and not permission.offers(option_id):
            raise Refused(NOT_OFFERED)
        permission.answering = True
        return permission

    def answered(self, permission: Permission) -> None:
        """The agent has the answer."""
        self._finish(permission, ALREADY_RESOLVED)

    def cancelled(self, permission: Permission) -> None:
        """Nobody may answer it any more."""
        self._finish(permission, STALE)

    def _finish(self, permission: Permission, code: str) -> None:
        if self._open.pop(permission.request_id, None) is None:
            return
        self._finished[permission.request_id] = code
        if len(self._finished) > TOMBSTONES:
            self._finished.popitem(last=False)

    def cancel_all(self) -> list[Permission]:
        """Everything that nobody has answered, now cancelled."""
        cancelled = [permission for permission in self._open.values() if not permission.answering]
        for permission in cancelled:
            self.cancelled(permission)
        return cancelled

    def __len__(self) -> int:
        return len(self._open)

    def listed(self, task_id: str, session_id: str) -> list[dict[str, Any]]:
        """Items of `agent.permissions.list`."""
        return [
            {
                "task_id": task_id,
                "session_id": session_id or permission.acp_session,
                "request_id": permission.request_id,
                "pending_id": permission.pending_id,
                **_without_empty(tool_call_id=permission.tool_call_id),
                "title": permission.title,
                "action": {
                    "type": permission.action_type,
                    **_without_empty(description=permission.description),
                    **permission.details,
                    "redacted": permission.was_redacted,
                },
                "options": permission.options,
                "created_at": permission.created_at,
                "status": "pending",
            }
            for permission in self._open.values()
        ]
