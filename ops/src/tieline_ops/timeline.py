"""Pure: one line for each event, as the demo and people who look at a session read it.

Pieces of one text become one line (`Telling`). What only steers a terminal is left out of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

_KIND = 18  # characters of the longest common type: the words behind it stand in a column
_WIDTH = 78  # with the time and the log before it, a line fits into a terminal of 100 columns

# CSI and OSC sequences, and the short ones, as ECMA-48 has them.
_STEERING = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[ -/]*[0-~])")

# Types whose neighbours are pieces of one text, and where it stands.
_PIECES = {
    "message_chunk": ("text",),
    "reasoning": ("reasoning_text", "text"),  # the coding agent's, the expert agent's
    "shell_output": ("data",),
    "delta": ("text",),
}
_WHOSE = ("role", "protocol_message_id", "message_id")


def line(event: dict[str, Any]) -> str:
    """What an event says, in one line; its type alone where we know no better."""
    kind = str(event.get("type", "?"))
    said = _SAYS.get(kind)
    text = said(event) if said is not None else ""
    return _short(f"{kind:<{_KIND}}  {text}".rstrip())


class Telling:
    """Says events line by line. A piece of a text waits for what follows it, and is joined with it."""

    def __init__(self, say: Callable[[str, str], None]) -> None:
        self._say = say
        self._log = ""
        self._pending: dict[str, Any] | None = None

    def say(self, name: str, text: str) -> None:
        """Any other line."""
        self.flush()
        self._say(name, text)

    def event(self, log: str, event: dict[str, Any]) -> None:
        if not is_piece(event):
            self.say(log, line(event))
            return
        if self._pending is not None and log == self._log and (whole := joined(self._pending, event)):
            self._pending = whole
            return
        self.flush()
        self._log, self._pending = log, event

    def flush(self) -> None:
        """Say what waits."""
        if self._pending is not None:
            event, self._pending = self._pending, None
            self._say(self._log, line(event))


def _field(event: dict[str, Any]) -> str | None:
    names = _PIECES.get(str(event.get("type")), ())
    return next((name for name in names if isinstance(event.get(name), str)), None)


def is_piece(event: dict[str, Any]) -> bool:
    """Whether an event is a piece of a text."""
    return _field(event) is not None


def joined(before: dict[str, Any], event: dict[str, Any]) -> dict[str, Any] | None:
    """Two neighbouring pieces of one text as one; None where they are of different ones."""
    field = _field(event)
    if field is None or not isinstance(before.get(field), str) or event.get("type") != before.get("type"):
        return None
    if any(event.get(name) != before.get(name) for name in _WHOSE):
        return None
    return {**before, field: before[field] + event[field]}


def _short(text: str) -> str:
    plain = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return plain if len(plain) <= _WIDTH else plain[: _WIDTH - 1] + "…"


def _quoted(text: object) -> str:
    """A text as it stands in code, without what only steers a terminal."""
    return repr(_STEERING.sub("", str(text)).replace("\r\n", "\n"))


def _count(name: str, word: str) -> Callable[[dict[str, Any]], str]:
    return lambda event: f"{len(event.get(name) or [])} {word}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _within(event: dict[str, Any], name: str) -> dict[str, Any]:
    value = event.get(name)
    return value if isinstance(value, dict) else {}


def _turn(event: dict[str, Any]) -> str:
    return f"{event.get('generation')} {event.get('state')} {event.get('reason', '')}"


def _permission(event: dict[str, Any]) -> str:
    options = ", ".join(str(option.get("option_id")) for option in event.get("permission_options") or [])
    return f"{event.get('permission_title')} [{options}]"


def _tool(event: dict[str, Any]) -> str:
    if "function" in event:  # an expert agent's, which calls a remote
        return f"{event.get('remote')}.{event['function']} {_json(event.get('arguments'))}"
    return f"{event.get('tool_title') or event.get('tool_call_id', '')} {event.get('tool_status', '')}"


def _result(event: dict[str, Any]) -> str:
    if "error" in event:
        return f"error: {event.get('code')}: {event['error']}"
    return _json(event.get("result"))


def _message(event: dict[str, Any]) -> str:
    return f"{event.get('role')}: {_quoted(event.get('content', ''))}"


def _attachment(event: dict[str, Any]) -> str:
    told = _within(event, "mcp_attachment")
    return f"{told.get('server_name', '')} {told.get('kind', '')}".strip()


def _capabilities(event: dict[str, Any]) -> str:
    return ", ".join(
        name.removeprefix("supports_").replace("_", " ")
        for name, value in event.items()
        if name.startswith("supports_") and value is True
    )


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
    "message_chunk": lambda event: _quoted(event.get("text", "")),
    "reasoning": lambda event: _quoted(event.get("reasoning_text") or event.get("text", "")),
    "turn": _turn,
    "permission_request": _permission,
    "permissions": _count("open", "open"),
    "questions": _count("open", "open"),
    "processes": _count("running", "running"),
    "agent_capabilities": _capabilities,
    "available_commands": _count("available_commands", "commands"),
    "session_mode": lambda event: str(event.get("current_mode_id", "")),
    "session_models": lambda event: str(event.get("current_model_id", "")),
    "session_status": lambda event: str(event.get("session_status", "")),
    "mcp_attachment": _attachment,
    "tool_call": _tool,
    "tool_update": _tool,
    "plan": _plan,
    "complete": lambda event: str(_within(event, "data").get("stop_reason", "")),
    "shell_output": lambda event: _quoted(event.get("data", "")),
    "shell_exit": lambda event: f"code {event.get('code', 0)}",
    "process_output": lambda event: _quoted(_within(event, "process_output").get("data", "")),
    "process_status": lambda event: str(_within(event, "process_status").get("status", "")),
    "file_change": _file_change,
    "git_status": _git_status,
    "git_commit": _git_commit,
    "session": lambda event: f"{event.get('state')} {event.get('reason', '')}",
    "connection": _connection,
    "message": _message,
    "delta": lambda event: _quoted(event.get("text", "")),
    "run": lambda event: f"{event.get('state')} {event.get('reason', '')}",
    "tool_progress": lambda event: str(event.get("message", "")),
    "tool_result": _result,
    "epoch": lambda event: "a new owner" + ("" if event.get("clean", True) else ", not clean"),
    "gap": lambda event: f"{event.get('reason')}: {event.get('events', '?')} events are missing",
}
