"""Pure: the frontend protocol, which clients are written against: frames, actions, what each carries.

`ACTIONS` is the one table: which payload an action has, who answers it, whether it keeps its order, how long it may
take. The reference that ships is generated from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from tieline_protocol import jsontext
from tieline_protocol.batch import frame
from tieline_protocol.errors import BadMessage, Code, Refused, TielineError
from tieline_protocol.messages import explain
from tieline_protocol.remotes import LONGEST_TIMEOUT_MS

PROTOCOL = 1
SUBPROTOCOL = "tieline.v1"
FRAME_BYTES = 7 * 1024 * 1024
RESULT_BYTES = 5_000_000

_KINDS = ("request", "response", "error", "notification")
_MAX_ID = 256
_MAX_ACTION = 128

FrameId = str | int | None


# Frames


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that a client sent. `payload` is {} where it is absent or null."""

    kind: str
    id: FrameId
    action: str
    payload: dict[str, Any]
    traceparent: str | None = None


class BadFrame(BadMessage):
    """A frame that cannot be understood; `id` and `action` are what could be read of it."""

    def __init__(self, message: str, id: FrameId = None, action: str | None = None) -> None:
        super().__init__(message)
        self.id = id
        self.action = action


def parse(text: str | bytes) -> Frame:
    """The frame in a text message. Raises BadFrame, never anything else."""
    try:
        value = jsontext.loads(text)
    except BadMessage as exc:
        raise BadFrame(exc.message) from exc
    if not isinstance(value, dict):
        raise BadFrame("a frame must be a JSON object")
    id, action, kind = value.get("id"), value.get("action"), value.get("type", "request")
    known_id = id if _is_id(id) else None
    known_action = action if isinstance(action, str) and len(action) <= _MAX_ACTION else None
    if kind not in _KINDS:
        raise BadFrame(f"type: one of {', '.join(_KINDS)}", known_id, known_action)
    if known_action is None:
        raise BadFrame(f"action: a text of up to {_MAX_ACTION} characters", known_id)
    if id is not None and known_id is None:
        raise BadFrame(f"id: a text of 1 to {_MAX_ID} characters, or an integer", None, known_action)
    if known_id is None and kind != "notification":
        raise BadFrame("id: missing", None, known_action)
    payload = value.get("payload")
    if payload is not None and not isinstance(payload, dict):
        raise BadFrame("payload: must be an object", known_id, known_action)
    metadata = value.get("metadata")
    trace = metadata.get("traceparent") if isinstance(metadata, dict) else None
    return Frame(kind, known_id, known_action, payload or {}, trace if _is_trace(trace) else None)


def _is_id(value: object) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= _MAX_ID
    return isinstance(value, int) and not isinstance(value, bool)


def _is_trace(value: object) -> bool:
    return isinstance(value, str) and len(value) == 55 and value.isascii()


def response(id: FrameId, action: str, payload: dict[str, Any] | bytes) -> bytes:
    """The frame of an answer, ready for a socket. Bytes are JSON text, spliced in as they are."""
    body = payload if isinstance(payload, bytes) else jsontext.dumps(payload)
    return frame(
        b'{"type":"response","id":%b,"action":%b,"payload":%b}'
        % (orjson.dumps(id), orjson.dumps(action), body)
    )


def error(id: FrameId, action: str | None, problem: TielineError) -> bytes:
    """The frame that says no, ready for a socket."""
    body: dict[str, Any] = {"code": problem.code, "message": problem.message}
    if problem.details is not None:
        body["details"] = problem.details
    return frame(jsontext.dumps({"type": "error", "id": id, "action": action, "payload": body}))


def notification(action: str, payload: dict[str, Any], traceparent: object = None) -> bytes:
    """The frame of a notification, ready for a socket."""
    body: dict[str, Any] = {"type": "notification", "action": action, "payload": payload}
    if _is_trace(traceparent):
        body["metadata"] = {"traceparent": traceparent}
    return frame(jsontext.dumps(body))


def call_result(request_id: str, result: bytes) -> bytes:
    """The frame that brings a call's result, ready for a socket; `result` is JSON text, spliced in as it is."""
    return frame(
        b'{"type":"notification","action":"remote-call-result","payload":{"requestId":"%b","result":%b}}'
        % (request_id.encode(), result)
    )


# Payloads


class Payload(BaseModel):
    """Base of what a request carries. Types are exact ("3" is no number); unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    def given(self) -> dict[str, Any]:
        """The fields that the client gave, without nulls."""
        return self.model_dump(exclude_unset=True, exclude_none=True)


SessionId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Title = Annotated[str, StringConstraints(max_length=500)]
Text = Annotated[str, StringConstraints(min_length=1)]
Count = Annotated[int, Field(ge=0, le=2**31)]
Cells = Annotated[int, Field(ge=1, le=10_000)]
Limit = Annotated[int, Field(ge=1, le=1_000)]
Log = Literal["agent", "workspace"]


def _said(description: str) -> Any:
    """What the reference says of a field."""
    return Field(description=description)


Repo = Annotated[
    str,
    _said("the folder of one repository, where a workspace holds several; without it the workspace's own"),
]
MessageId = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200),
    _said("minted by the client: a message that is sent again with it is not done twice"),
]


class Empty(Payload):
    """Nothing."""


class Auth(Payload):
    token: Annotated[str, StringConstraints(min_length=1, max_length=16_384)]


class SessionOpen(Payload):
    executor: Annotated[Name, _said("a name of the operator's; the first one by default")] | None = None
    workspace: (
        Annotated[
            str,
            StringConstraints(min_length=1, max_length=1_024),
            _said("a path under the executor's root, made when absent, shared by all who name it"),
        ]
        | None
    ) = None
    agent: Annotated[Name, _said("a name of the operator's; the first one by default")] | None = None
    title: Title | None = None
    remotes: (
        Annotated[list[Name], Field(max_length=128), _said("whose functions the agent gets as tools")] | None
    ) = None


class SessionList(Payload):
    after: Annotated[str, StringConstraints(max_length=200)] | None = None
    limit: Limit | None = None


class OfSession(Payload):
    """Only the session."""

    session_id: SessionId


class SessionRename(OfSession):
    title: Title


class SessionSubscribe(OfSession):
    logs: Annotated[list[Log], Field(min_length=1, max_length=8)] | None = None
    cursors: (
        Annotated[dict[Log, str], _said("by log: a cursor, `start`, `snapshot` or `now`, see Events")] | None
    ) = None


class SessionUnsubscribe(OfSession):
    logs: list[Log] | None = None


class AgentInitialize(OfSession):
    client_name: str | None = None
    client_version: str | None = None


class AgentSessionNew(OfSession):
    cwd: str | None = None
    mcp_servers: list[dict[str, Any]] | None = None


class AgentSessionLoad(OfSession):
    acp_session_id: (
        Annotated[Text, _said("the agent's own id; without it, the one that the session has")] | None
    ) = None
    mcp_servers: list[dict[str, Any]] | None = None


class AgentSetMode(OfSession):
    mode_id: Text


class AgentSetModel(OfSession):
    model_id: Text


class AgentSetConfigOption(OfSession):
    config_id: Text
    value: str


class AgentAuthenticate(OfSession):
    method_id: Text


class AgentPrompt(OfSession):
    text: str
    attachments: (
        Annotated[
            list[dict[str, Any]],
            _said(
                "each `{type: image, audio or resource, data: base64, mime_type?, name?}`, of a kind that"
                " `agent_capabilities` names"
            ),
        ]
        | None
    ) = None
    client_message_id: MessageId | None = None
    queue: (
        Annotated[bool, _said("while a turn runs, wait for its end and be the next; else that is a conflict")]
        | None
    ) = None


class PermissionRespond(OfSession):
    request_id: str | None = None
    pending_id: Text
    option_id: str | None = None
    cancelled: bool | None = None

    @model_validator(mode="after")
    def _decided(self) -> PermissionRespond:
        if not self.cancelled and not self.option_id:
            raise ValueError("option_id, or cancelled: true, is required")
        return self


class QuestionAnswer(OfSession):
    question_id: Text
    answers: list[Any] | dict[str, Any] | None = None
    rejected: bool | None = None

    @model_validator(mode="after")
    def _decided(self) -> QuestionAnswer:
        if self.answers is None and not self.rejected:
            raise ValueError("answers, or rejected: true, is required")
        return self


class ShellInput(OfSession):
    data: str


class ShellResize(OfSession):
    cols: Cells
    rows: Cells


class FileTree(OfSession):
    path: str | None = None
    depth: Annotated[Count, _said("levels of folders below the path: 1 by default, 0 for all")] | None = None


class FileContent(OfSession):
    path: Text
    repo: Repo | None = None


class FileSearch(OfSession):
    q: str
    limit: Annotated[int, Field(ge=1, le=200)] | None = None


class FileUpdate(OfSession):
    path: Text
    diff: Annotated[str, _said("a unified diff")]
    original_hash: Annotated[
        str,
        _said(
            "SHA-256, in hex, of the bytes that the diff was made against; an empty text: whatever is there"
        ),
    ]
    desired_content: (
        Annotated[str, _said("overwrites the file where the hash or the diff does not fit")] | None
    ) = None
    repo: Repo | None = None


class FilePath(OfSession):
    path: Text
    repo: Repo | None = None


class FileRename(OfSession):
    old_path: Text
    new_path: Text
    repo: Repo | None = None


class GitRepo(OfSession):
    repo: Repo | None = None


class GitStatus(GitRepo):
    fresh: Annotated[bool, _said("ask git now instead of telling what was seen last")] | None = None


class GitPull(GitRepo):
    rebase: bool | None = None


class GitPush(GitRepo):
    force: bool | None = None
    set_upstream: bool | None = None


class GitBase(GitRepo):
    base_branch: Text


class GitAbort(GitRepo):
    operation: Literal["merge", "rebase"]


class GitCommit(GitRepo):
    message: Text
    stage_all: bool | None = None
    amend: bool | None = None


class GitPaths(GitRepo):
    paths: list[Text] | None = None


class GitDiscard(GitRepo):
    paths: Annotated[list[Text], Field(min_length=1)]


class GitSha(GitRepo):
    commit_sha: Text


class GitShow(GitRepo):
    sha: Text


class GitReset(GitSha):
    mode: Literal["soft", "mixed", "hard"] | None = None


class GitRenameBranch(GitRepo):
    new_name: Text


class GitLog(GitRepo):
    since: Annotated[str, _said("a commit: only those after it")] | None = None
    target_branch: (
        Annotated[str, _said("only commits that this branch lacks, where `since` names none")] | None
    ) = None
    limit: Annotated[int, Field(ge=1, le=500)] | None = None


class GitCumulativeDiff(GitRepo):
    base: Annotated[Text, _said("the commit to compare with")]
    target_branch: (
        Annotated[str, _said("compare with where this branch was left, where `base` names no commit")] | None
    ) = None


class ProcessStart(OfSession):
    kind: Literal["setup", "cleanup", "dev", "custom", "agent_passthrough"] | None = None
    script_name: str | None = None
    command: Text
    working_dir: Annotated[str, _said("within the workspace; its root by default")] | None = None
    env: dict[str, str] | None = None
    buffer_max_bytes: (
        Annotated[int, Field(ge=0, le=2**40), _said("how much of its output is kept for `process.get`")]
        | None
    ) = None


class ProcessStop(OfSession):
    process_id: Text


class ProcessGet(OfSession):
    process_id: Text
    include_output: bool | None = None


class VscodeStart(OfSession):
    theme: str | None = None


class ExternalRemote(Payload):
    """Where an external remote's functions run."""

    kind: Literal["http", "mcp"]
    url: Annotated[str, StringConstraints(min_length=1, max_length=2_048)]
    headers: dict[str, str] | None = None


class OfRemote(Payload):
    """Only the remote."""

    remotename: Name


class RemoteConnect(OfRemote):
    functions: Annotated[list[Any], Field(max_length=1_024)] | None = None  # each is checked by itself
    external: ExternalRemote | None = None

    @model_validator(mode="after")
    def _something(self) -> RemoteConnect:
        if self.functions is None and (self.external is None or self.external.kind != "mcp"):
            raise ValueError("functions: a list is required")  # an MCP server tells its own
        return self


class RemoteCall(OfRemote):
    function: Name
    args: dict[str, Any]
    timeout_ms: Annotated[int, Field(ge=1, le=LONGEST_TIMEOUT_MS)] | None = None


class OfCall(Payload):
    """Only the call."""

    requestId: Annotated[str, StringConstraints(min_length=1, max_length=140)]


class RemoteCallResult(OfCall):
    """One of the two; an error wins. Read by hand in the gateway: a result passes as the text that it is."""

    result: Any = None
    error: str | None = None
    code: str | None = None


class RemoteCallProgress(OfCall):
    message: Annotated[str, StringConstraints(max_length=16_384)] | None = None
    progress: float | None = None
    total: float | None = None


class OfThread(Payload):
    """Only the thread."""

    thread_id: SessionId


class ThreadCreate(Payload):
    title: Title | None = None
    model: Name | None = None
    instructions: Annotated[str, StringConstraints(max_length=100_000)] | None = None


class ThreadRename(OfThread):
    title: Title


class Resource(Payload):
    """What comes with a message; a remote is `{kind: "system", subkind: "remote", content: its name}`."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    kind: Name
    subkind: Name | None = None
    content: Any = None


class ThreadMessage(OfThread):
    content: Text
    resources: Annotated[list[Resource], Field(max_length=256)] | None = None
    client_message_id: MessageId | None = None


class ThreadCancel(OfThread):
    run_id: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None


class ThreadSubscribe(OfThread):
    cursor: str | None = None


# Actions


class Route(StrEnum):
    """Who answers."""

    GATEWAY = "gateway"
    SERVICE = "service"  # any replica of a service, `tieline.rpc.<service>.<endpoint>`
    OWNER = "owner"  # whoever owns the session or thread, `tieline.command.…`


@dataclass(frozen=True, slots=True)
class Action:
    """One action. `repeat`: one of unknown fate may go to a new owner (a read, what may be done twice, a prompt).

    `named` is the field that says which session or thread; `service` answers at `endpoint`, also where nobody owns it.
    """

    name: str
    payload: type[Payload]
    answer: str
    route: Route = Route.OWNER
    service: str = "streams"
    endpoint: str = ""
    named: str = "session_id"
    ordered: bool = False
    repeat: bool = False
    seconds: float = 60


def _action(name: str, payload: type[Payload], answer: str, **rest: Any) -> Action:
    return Action(name, payload, answer, **rest)


_GIT = "{success, operation, output, error?, …}"
_GIT_SHORT: dict[str, type[Payload]] = {
    "stage": GitPaths,
    "unstage": GitPaths,
    "discard": GitDiscard,
    "abort": GitAbort,
    "reset": GitReset,
    "revert-commit": GitSha,
    "rename-branch": GitRenameBranch,
}
_GIT_LONG: dict[str, type[Payload]] = {
    "commit": GitCommit,
    "push": GitPush,
    "pull": GitPull,
    "rebase": GitBase,
    "merge": GitBase,
}

_TABLE = (
    _action("auth", Auth, "{user_id, connection_id, protocol, limits}", route=Route.GATEWAY, seconds=5),
    _action(
        "session.open",
        SessionOpen,
        "{session_id, state}",
        route=Route.SERVICE,
        endpoint="open",
        repeat=True,  # the session's id follows from the request's
        seconds=65,
    ),
    _action(
        "session.list",
        SessionList,
        "{sessions: […], next?}",
        route=Route.SERVICE,
        endpoint="list",
        repeat=True,
        seconds=15,
    ),
    _action("session.close", OfSession, "{}", endpoint="close", repeat=True, seconds=30),
    _action(
        "session.get",
        OfSession,
        "the record, connection states, turn state",
        endpoint="get",
        repeat=True,
        seconds=15,
    ),
    _action("session.rename", SessionRename, "{}", endpoint="rename", repeat=True, seconds=15),
    _action(
        "session.subscribe",
        SessionSubscribe,
        "{logs: {log: {cursor, reset}}}, then events",
        route=Route.GATEWAY,
        seconds=30,
    ),
    _action("session.unsubscribe", SessionUnsubscribe, "{}", route=Route.GATEWAY, seconds=15),
    _action("agent.initialize", AgentInitialize, "{success, agent_info?, error?}", seconds=185),
    _action(
        "agent.session.new", AgentSessionNew, "{success, session_id?, model_state?, error?}", seconds=125
    ),
    _action(
        "agent.session.load", AgentSessionLoad, "{success, session_id?, model_state?, error?}", seconds=125
    ),
    _action(
        "agent.session.reset", AgentSessionNew, "{success, session_id?, model_state?, error?}", seconds=125
    ),
    _action("agent.session.set_mode", AgentSetMode, "{success}"),
    _action("agent.session.set_model", AgentSetModel, "{success}"),
    _action("agent.session.set_config_option", AgentSetConfigOption, "{success}"),
    _action("agent.session.authenticate", AgentAuthenticate, "{success}"),
    _action("agent.stderr", OfSession, "{lines}", repeat=True),
    _action("agent.prompt", AgentPrompt, "{generation}", repeat=True),
    _action("agent.cancel", OfSession, "{state}", seconds=45),
    _action("agent.permissions.list", OfSession, "{permissions}", repeat=True),
    _action("agent.permissions.respond", PermissionRespond, "{status}"),
    _action("question.answer", QuestionAnswer, "{}"),
    _action("shell.input", ShellInput, "{}", ordered=True, seconds=15),
    _action("shell.resize", ShellResize, "{}", ordered=True, seconds=15),
    _action(
        "shell.status",
        OfSession,
        "{available, running, pid?, shell?, cwd?, started_at?, error?}",
        repeat=True,
    ),
    _action("shell.buffer", OfSession, "{data, cursor}", repeat=True),
    _action("workspace.file-tree", FileTree, "{root, error?}", repeat=True),
    _action(
        "workspace.file-content",
        FileContent,
        "{path, content, size, is_binary?, resolved_path?, error?}",
        repeat=True,
    ),
    _action("workspace.file-search", FileSearch, "{files, results, error?}", repeat=True),
    _action("workspace.file-create", FilePath, "{path, success, error?}"),
    _action("workspace.file-update", FileUpdate, "{path, success, new_hash?, resolution?, error?}"),
    _action("workspace.file-rename", FileRename, "{old_path, new_path, success, error?}"),
    _action("workspace.file-delete", FilePath, "{path, success, error?}"),
    _action("git.status", GitStatus, "{success, branch, …, files, error?}", repeat=True),
    _action("git.status-multi", GitStatus, "{success, repos, error?}", repeat=True),
    _action("git.log", GitLog, "{success, commits, error?}", repeat=True),
    _action("git.show", GitShow, "{success, commit_sha, message, author, date, files, …}", repeat=True),
    _action(
        "git.cumulative-diff", GitCumulativeDiff, "{success, base_commit, head_commit, files, …}", repeat=True
    ),
    *(_action(f"git.{name}", payload, _GIT) for name, payload in _GIT_SHORT.items()),
    *(
        _action(f"git.{name}", payload, f"{_GIT}, or {{operation_id}} after 5 s")
        for name, payload in _GIT_LONG.items()
    ),
    _action("process.start", ProcessStart, "{process}"),
    _action("process.stop", ProcessStop, "{success, error?}"),
    _action("process.get", ProcessGet, "{id, kind, command, status, exit_code?, output?, …}", repeat=True),
    _action("process.list", OfSession, "{processes: […]}", repeat=True),
    _action("vscode.start", VscodeStart, "{success, status, port?}"),
    _action("vscode.stop", OfSession, "{success, error?}"),
    _action("vscode.status", OfSession, "{status, port?, error?, message?}", repeat=True),
)


def _thread(name: str, payload: type[Payload], answer: str, **rest: Any) -> Action:
    facts = {"route": Route.SERVICE, "seconds": 15, "service": "agent", "named": "thread_id", **rest}
    return Action(f"thread.{name}", payload, answer, endpoint=name, **facts)


_REMOTES = (
    _action(
        "remote-connect",
        RemoteConnect,
        "{remotename, functions: [names], refused: [{name, error, pointer}]}",
        route=Route.GATEWAY,
        service="remotes",
        endpoint="connect",
        repeat=True,
        seconds=45,
    ),
    _action(
        "remote-disconnect",
        OfRemote,
        "{}",
        route=Route.GATEWAY,
        service="remotes",
        endpoint="disconnect",
        repeat=True,
        seconds=15,
    ),
    _action(
        "remote-list",
        Empty,
        "{remotes: [{remotename, functions, connected_at, external, mine}]}",
        route=Route.GATEWAY,
        service="remotes",
        endpoint="list",
        repeat=True,
        seconds=15,
    ),
    _action(
        "remote-call",
        RemoteCall,
        "{requestId}, then the notification remote-call-result {requestId, result} or {requestId, error, code}",
        route=Route.GATEWAY,
        seconds=15,
    ),
    _action("remote-call-result", RemoteCallResult, "{}", route=Route.GATEWAY, seconds=15),
    _action("remote-call-progress", RemoteCallProgress, "{}", route=Route.GATEWAY, seconds=15),
    _action("remote-call-cancel", OfCall, "{}", route=Route.GATEWAY, seconds=15),
)

_THREADS = (
    _thread("create", ThreadCreate, "{thread_id}"),
    _thread("list", SessionList, "{threads: […], next?}", repeat=True),
    _thread("get", OfThread, "the thread", repeat=True),
    _thread("rename", ThreadRename, "{}"),
    _thread("delete", OfThread, "{}"),
    _thread("message", ThreadMessage, "{message_id, run_id}", route=Route.OWNER, repeat=True, seconds=30),
    _thread("cancel", ThreadCancel, "{state}", route=Route.OWNER, repeat=True, seconds=30),
    _action(
        "thread.subscribe", ThreadSubscribe, "{cursor, reset}, then events", route=Route.GATEWAY, seconds=30
    ),
    _action("thread.unsubscribe", OfThread, "{}", route=Route.GATEWAY, seconds=15),
)

ACTIONS: dict[str, Action] = {action.name: action for action in (*_TABLE, *_REMOTES, *_THREADS)}


def action(name: str) -> Action:
    """The entry of an action. Raises Refused (unknown_action)."""
    found = ACTIONS.get(name)
    if found is None:
        raise Refused(Code.UNKNOWN_ACTION, f"unknown action: {name!r:.80}")
    return found


def payload(action: Action, value: dict[str, Any]) -> Payload:
    """What an action carries. Raises BadMessage with the names of the fields that are wrong."""
    try:
        return action.payload.model_validate(value)
    except ValidationError as exc:
        raise BadMessage(explain(exc)) from exc


# The state of a log in few events: the last event of each of these types is the whole state (Joining, `snapshot`).
VALUE_TYPES: dict[str, tuple[str, ...]] = {
    "agent": (
        "session",
        "connection",
        "agent_capabilities",
        "session_mode",
        "session_models",
        "session_info",
        "available_commands",
        "plan",
        "context_window",
        "turn",
        "permissions",
        "questions",
    ),
    "workspace": ("connection", "git_status", "processes"),
}
