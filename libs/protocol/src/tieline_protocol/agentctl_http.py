"""Pure: the HTTP of agentctl, a foreign format: the request of an action, in either spelling, and what answers mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from tieline_protocol.errors import BadMessage, Code, Refused

Spelling = Literal["field", "seed"]


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request. `safe`: it changes nothing, so it may be sent again."""

    method: str
    path: str
    query: dict[str, str]
    body: dict[str, Any] | None
    safe: bool


class _Route(NamedTuple):
    field_method: str
    field_path: str
    seed_method: str
    seed_path: str
    safe: bool = False


def _post(field: str, seed: str | None = None) -> _Route:
    return _Route("POST", field, "POST", seed or field)


def _git(path: str) -> _Route:
    return _post(f"git/{path}", f"workspace/git/{path}")


def _read(field: str, seed: str, seed_method: str = "GET") -> _Route:
    return _Route("GET", field, seed_method, seed, safe=True)


_ROUTES: dict[str, _Route] = {
    "status": _read("status", "status"),
    "configure": _post("agent/configure", "configure"),
    "start": _post("start"),
    "stop": _post("stop"),
    "workspace.file-tree": _read("workspace/tree", "workspace/file-tree", "POST"),
    "workspace.file-content": _read("workspace/file/content", "workspace/file-content", "POST"),
    "workspace.file-search": _read("workspace/search", "workspace/file-search", "POST"),
    "workspace.file-create": _post("workspace/file/create", "workspace/file-create"),
    "workspace.file-update": _post("workspace/file/content", "workspace/file-content"),
    "workspace.file-rename": _post("workspace/file/rename", "workspace/file-rename"),
    "workspace.file-delete": _Route("DELETE", "workspace/file", "POST", "workspace/file-delete"),
    "git.status": _read("git/status", "workspace/git/status", "POST"),
    "git.status-multi": _read("git/status/multi", "workspace/git/status/multi", "POST"),
    "git.log": _read("git/log", "workspace/git/log", "POST"),
    "git.cumulative-diff": _read("git/cumulative-diff", "workspace/git/cumulative-diff", "POST"),
    "git.show": _read("git/commit/{sha}", "workspace/git/commit/{sha}", "POST"),
    **{
        f"git.{path.replace('/', '-')}": _git(path)
        for path in (
            "stage",
            "unstage",
            "commit",
            "push",
            "push-preflight",
            "pull",
            "rebase",
            "merge",
            "abort",
            "discard",
            "create-pr",
            "revert-commit",
            "rename-branch",
            "reset",
            "contribution/replace",
            "contribution/use",
        )
    },
    "shell.status": _read("shell/status", "shell/status"),
    "scrollback": _read("shell/buffer", "shell/buffer"),
    "process.start": _post("processes/start", "process/start"),
    "process.stop": _post("processes/stop", "process/stop"),
    "process.get": _read("processes/{process_id}", "process/{process_id}"),
    "process.list": _read("processes", "processes"),
    "vscode.start": _post("vscode/start"),
    "vscode.stop": _post("vscode/stop"),
    "vscode.status": _read("vscode/status", "vscode/status"),
}

LONG = frozenset({"git.push", "git.pull", "git.rebase", "git.merge", "git.commit"})  # operations of minutes


def is_call(action: str) -> bool:
    """Whether an action is one HTTP request to the daemon."""
    return action in _ROUTES


def is_safe(action: str) -> bool:
    """Whether an action changes nothing, so that it may be done again."""
    return _ROUTES[action].safe


def call(action: str, payload: dict[str, Any], spelling: Spelling) -> Call:
    """The request of an action. Raises BadMessage for a parameter that cannot be written."""
    route = _ROUTES[action]
    method, path = (
        (route.field_method, route.field_path)
        if spelling == "field"
        else (route.seed_method, route.seed_path)
    )
    rest = {name: value for name, value in payload.items() if value is not None}
    if "{" in path:
        head, _, name = path.rstrip("}").partition("{")
        value = rest.pop(name, None)
        if not isinstance(value, str) or not value or value in (".", ".."):
            raise BadMessage(f"{name}: a non-empty string is required")
        path = head + quote(value, safe="")
    if method == "POST":
        return Call(method, f"/api/v1/{path}", {}, rest, route.safe)
    return Call(
        method, f"/api/v1/{path}", {name: _word(name, v) for name, v in rest.items()}, None, route.safe
    )


def health(spelling: Spelling) -> Call:
    """Is the instance there?"""
    return Call("GET", "/health" if spelling == "field" else "/api/v1/health", {}, None, True)


def _word(name: str, value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | float():
            return str(value)
    raise BadMessage(f"{name}: a string, number or boolean is required")


def is_gone(status: int, body: object) -> bool:
    """Whether an answer says that another instance, or none, has this port now."""
    return status == 404 and isinstance(body, dict) and body.get("recycled_port") is True


_MISSING = re.compile(r"(?:file|path) not found\b|.*\bno such file or directory\b", re.IGNORECASE | re.DOTALL)


def http_refused(status: int, body: object) -> Refused | None:
    """What an HTTP answer above 299 means for a client; None for a failure in an orderly way (`success: false`)."""
    message = None
    if isinstance(body, dict):
        if "success" in body and not body["success"]:
            return None
        message = body.get("error")
    text = message if isinstance(message, str) and message else f"the daemon answered {status}"
    code = {
        400: Code.BAD_REQUEST,
        404: Code.NOT_FOUND,
        409: Code.CONFLICT,
        413: Code.TOO_LARGE,
        422: Code.BAD_REQUEST,
        503: Code.UNAVAILABLE,
    }.get(status, Code.INTERNAL)
    if code is Code.BAD_REQUEST and "too large" in text:
        code = Code.TOO_LARGE
    elif code is Code.BAD_REQUEST and _MISSING.match(text):
        code = Code.NOT_FOUND
    return Refused(code, text, details={"status": status})
