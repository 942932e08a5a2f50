"""Pure: the `normalized` payload of a tool event, from what is known of the tool call by now.

`tool` is the ACP tool call with all its updates merged in, keys as ACP spells them. What is unknown is left out.
"""

from typing import Any


def normalized(tool: dict[str, Any]) -> dict[str, Any]:
    """`{"kind": K, K: {...}}`."""
    raw = tool.get("rawInput")
    given = raw if isinstance(raw, dict) else {}
    kind, detail = _detail(tool, given)
    return {"kind": kind, kind: detail}


def _detail(tool: dict[str, Any], given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    acp_kind = _str(tool.get("kind"))
    if _str(given.get("subagent_type")) and _str(given.get("prompt")):
        return "subagent_task", {
            "description": _str(given.get("description")),
            "prompt": _str(given.get("prompt")),
            "subagent_type": _str(given.get("subagent_type")),
        }
    if isinstance(given.get("todos"), list):
        return "manage_todos", {"operation": "update", "items": _todos(given["todos"])}
    if acp_kind == "read":
        return "read_file", _read_file(tool, given)
    if acp_kind in ("edit", "delete", "move"):
        return "modify_file", _modify_file(acp_kind, tool, given)
    if acp_kind == "execute":
        return "shell_exec", _shell_exec(tool, given)
    if acp_kind == "search":
        return "code_search", _code_search(tool, given)
    name = acp_kind if acp_kind not in ("", "other") else _str(tool.get("title"))
    return "generic", _present(name=name) | _present(input=tool.get("rawInput"), output=_output(tool))


def _read_file(tool: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    detail: dict[str, Any] = {"file_path": _path(tool, given)}
    detail |= _present(offset=_int(given.get("offset")), limit=_int(given.get("limit")))
    text = _text(tool)
    if text is not None:
        lines = len(text.splitlines())
        detail["output"] = _present(content=text, line_count=lines)
    return detail


def _modify_file(kind: str, tool: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    mutations: list[dict[str, Any]] = []
    path = _path(tool, given)
    for item in _contents(tool):
        if item.get("type") == "diff":
            path = path or _str(item.get("path"))
            old = item.get("oldText")
            mutations.append(
                {"type": "create"} | _present(content=_str(item.get("newText")))
                if old is None
                else {"type": "replace"}
                | _present(old_content=_str(old), new_content=_str(item.get("newText")))
            )
    if kind == "delete" and not mutations:
        mutations.append({"type": "delete"})
    if kind == "move" and not mutations:
        new_path = _first(given, "new_path", "newPath", "destination", "to")
        mutations.append({"type": "rename"} | _present(new_path=new_path))
    if kind == "edit" and not mutations and isinstance(given.get("content"), str):
        mutations.append({"type": "create"} | _present(content=given["content"]))
    return {"file_path": path, "mutations": mutations or None}


def _shell_exec(tool: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    command = given.get("command", given.get("cmd"))
    if isinstance(command, list):
        command = " ".join(_str(part) for part in command)
    detail: dict[str, Any] = {"command": _str(command) or _str(tool.get("title"))}
    detail |= _present(
        work_dir=_first(given, "cwd", "workdir", "work_dir"),
        description=_str(given.get("description")),
        timeout=_int(given.get("timeout")),
        background=given.get("run_in_background") is True or given.get("background") is True,
    )
    raw = tool.get("rawOutput")
    result = raw if isinstance(raw, dict) else {}
    output = _present(stdout=_first(result, "stdout", "output"), stderr=_str(result.get("stderr")))
    if not output:
        output = _present(stdout=_text(tool))
    for spelling in ("exit_code", "exitCode"):
        code = _int(result.get(spelling))
        if code is not None:
            output["exit_code"] = code
    if output:
        detail["output"] = output
    return detail


def _code_search(tool: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    detail = _present(
        query=_str(given.get("query")),
        pattern=_str(given.get("pattern")),
        path=_first(given, "path", "file_path"),
        glob=_str(given.get("glob")),
    )
    text = _text(tool)
    if text is not None:
        files = [line for line in text.splitlines() if line.strip()]
        detail["output"] = _present(files=files, file_count=len(files))
    return detail


def _todos(todos: list[Any]) -> list[dict[str, Any]]:
    return [
        {"description": _first(todo, "content", "description")}
        | _present(
            id=_str(todo.get("id")), status=_str(todo.get("status")), active_form=_str(todo.get("activeForm"))
        )
        for todo in todos
        if isinstance(todo, dict)
    ]


def _output(tool: dict[str, Any]) -> Any:
    raw = tool.get("rawOutput")
    return raw if raw is not None else _text(tool)


def _text(tool: dict[str, Any]) -> str | None:
    """The text among the tool's contents; None when there is none."""
    found = [
        block["text"]
        for item in _contents(tool)
        if item.get("type") == "content" and isinstance(block := item.get("content"), dict)
        if isinstance(block.get("text"), str)
    ]
    return "\n".join(found) if found else None


def _contents(tool: dict[str, Any]) -> list[dict[str, Any]]:
    contents = tool.get("content")
    return [item for item in contents if isinstance(item, dict)] if isinstance(contents, list) else []


def _path(tool: dict[str, Any], given: dict[str, Any]) -> str:
    named = _first(given, "file_path", "path", "filePath", "abs_path")
    if named:
        return named
    locations = tool.get("locations")
    if isinstance(locations, list) and locations and isinstance(locations[0], dict):
        return _str(locations[0].get("path"))
    return ""


def _first(given: dict[str, Any], *names: str) -> str:
    return next((given[name] for name in names if isinstance(given.get(name), str) and given[name]), "")


def _str(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _present(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value not in (None, "", 0, False, [], {})}
