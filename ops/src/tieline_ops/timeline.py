"""Pure: one line for each event, as the demo and people who look at a session read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_WIDTH = 96


def line(event: dict[str, Any]) -> str:
    """What an event says, in one line; its type alone where we know no better."""
    kind = str(event.get("type", "?"))
    said = _SAYS.get(kind)
    text = said(event) if said is not None else ""
    return _short(f"{kind}  {text}".rstrip())


def _short(text: str) -> str:
    plain = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return plain if len(plain) <= _WIDTH else plain[: _WIDTH - 1] + "…"


def _within(event: dict[str, Any], name: str) -> dict[str, Any]:
    value = event.get(name)
    return value if isinstance(value, dict) else {}


def _turn(event: dict[str, Any]) -> str:
    return f"{event.get('generation')} {event.get('state')} {event.get('reason', '')}"


def _permission(event: dict[str, Any]) -> str:
    options = ", ".join(str(option.get("option_id")) for option in event.get("permission_options") or [])
    return f"{event.get('permission_title')} [{options}]"


def _tool(event: dict[str, Any]) -> str:
    return f"{event.get('tool_title') or event.get('tool_call_id', '')} {event.get('tool_status', '')}"


def _plan(event: dict[str, Any]) -> str:
    entries = event.get("plan_entries") or event.get("entries") or []
    return " | ".join(str(entry.get("description") or entry.get("content", "")) for entry in entries)


def _git_status(event: dict[str, Any]) -> str:
    status = _within(event, "git_status")
    parts = [
        f"{name} {' '.join(status[name])}"
        for name in ("modified", "added", "deleted", "untracked", "renamed")
        if status.get(name)
    ]
    return f"on {status.get('branch')}: {'; '.join(parts) or 'clean'}"


def _git_commit(event: dict[str, Any]) -> str:
    commit = _within(event, "git_commit")
    return f"{str(commit.get('commit_sha', ''))[:8]} {commit.get('message', '')}"


def _file_change(event: dict[str, Any]) -> str:
    change = _within(event, "file_change")
    return f"{change.get('operation')} {change.get('path')}"


def _connection(event: dict[str, Any]) -> str:
    return f"{event.get('stream')} {event.get('state')} {event.get('error', '')}"


_SAYS: dict[str, Callable[[dict[str, Any]], str]] = {
    "message_chunk": lambda event: repr(event.get("text", "")),
    "reasoning": lambda event: repr(event.get("reasoning_text") or event.get("text", "")),
    "turn": _turn,
    "permission_request": _permission,
    "permissions": lambda event: f"{len(event.get('open') or [])} open",
    "tool_call": _tool,
    "tool_update": _tool,
    "plan": _plan,
    "complete": lambda event: str(_within(event, "data").get("stop_reason", "")),
    "shell_output": lambda event: repr(event.get("data", "")),
    "shell_exit": lambda event: f"code {event.get('code')}",
    "file_change": _file_change,
    "git_status": _git_status,
    "git_commit": _git_commit,
    "session": lambda event: f"{event.get('state')} {event.get('reason', '')}",
    "connection": _connection,
    "epoch": lambda event: "a new owner" + ("" if event.get("clean", True) else ", not clean"),
    "gap": lambda event: f"{event.get('reason')}: {event.get('events', '?')} events are missing",
}
