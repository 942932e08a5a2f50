"""Pure: the workspace of a session: its shell, files, processes and editor."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tieline_protocol.frontend.actions import Action, Count, OfSession, Repo, Text, said

Cells = Annotated[int, Field(ge=1, le=10_000)]


class ShellInput(OfSession):
    data: str


class ShellResize(OfSession):
    cols: Cells
    rows: Cells


class FileTree(OfSession):
    path: str | None = None
    depth: Annotated[Count, said("levels of folders below the path: 1 by default, 0 for all")] | None = None


class FileContent(OfSession):
    path: Text
    repo: Repo | None = None


class FileSearch(OfSession):
    q: str
    limit: Annotated[int, Field(ge=1, le=200)] | None = None


class FileUpdate(OfSession):
    path: Text
    diff: Annotated[str, said("a unified diff")]
    original_hash: Annotated[
        str,
        said(
            "SHA-256, in hex, of the bytes that the diff was made against; an empty text: whatever is there"
        ),
    ]
    desired_content: (
        Annotated[str, said("overwrites the file where the hash or the diff does not fit")] | None
    ) = None
    repo: Repo | None = None


class FilePath(OfSession):
    path: Text
    repo: Repo | None = None


class FileRename(OfSession):
    old_path: Text
    new_path: Text
    repo: Repo | None = None


class ProcessStart(OfSession):
    kind: Literal["setup", "cleanup", "dev", "custom", "agent_passthrough"] | None = None
    script_name: str | None = None
    command: Text
    working_dir: Annotated[str, said("within the workspace; its root by default")] | None = None
    env: dict[str, str] | None = None
    buffer_max_bytes: (
        Annotated[int, Field(ge=0, le=2**40), said("how much of its output is kept for `process.get`")] | None
    ) = None


class ProcessStop(OfSession):
    process_id: Text


class ProcessGet(OfSession):
    process_id: Text
    include_output: bool | None = None


class VscodeStart(OfSession):
    theme: str | None = None


ACTIONS = (
    Action("shell.input", ShellInput, "{}", ordered=True, seconds=15),
    Action("shell.resize", ShellResize, "{}", ordered=True, seconds=15),
    Action(
        "shell.status",
        OfSession,
        "{available, running, pid?, shell?, cwd?, started_at?, error?}",
        repeat=True,
    ),
    Action("shell.buffer", OfSession, "{data, cursor}", repeat=True),
    Action("workspace.file-tree", FileTree, "{root, error?}", repeat=True),
    Action(
        "workspace.file-content",
        FileContent,
        "{path, content, size, is_binary?, resolved_path?, error?}",
        repeat=True,
    ),
    Action("workspace.file-search", FileSearch, "{files, results, error?}", repeat=True),
    Action("workspace.file-create", FilePath, "{path, success, error?}"),
    Action("workspace.file-update", FileUpdate, "{path, success, new_hash?, resolution?, error?}"),
    Action("workspace.file-rename", FileRename, "{old_path, new_path, success, error?}"),
    Action("workspace.file-delete", FilePath, "{path, success, error?}"),
    Action("process.start", ProcessStart, "{process}"),
    Action("process.stop", ProcessStop, "{success, error?}"),
    Action("process.get", ProcessGet, "{id, kind, command, status, exit_code?, output?, …}", repeat=True),
    Action("process.list", OfSession, "{processes: […]}", repeat=True),
    Action("vscode.start", VscodeStart, "{success, status, port?}"),
    Action("vscode.stop", OfSession, "{success, error?}"),
    Action("vscode.status", OfSession, "{status, port?, error?, message?}", repeat=True),
)
