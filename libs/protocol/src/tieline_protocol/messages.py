"""Pure: the messages that processes exchange, beside events: requests, replies, records.

Frozen models; unknown fields are ignored, so that a newer peer may say more. Sizes of whole messages are the bus's
business. Times are Unix milliseconds unless a name says otherwise.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from tieline_protocol import jsontext
from tieline_protocol.errors import BadMessage, Code, Refused, TielineError


class Message(BaseModel):
    """Base of everything that travels between processes or stands in a bucket."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def encode(self) -> bytes:
        return jsontext.dumps(self.model_dump(exclude_none=True))

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        """Raises BadMessage."""
        try:
            return cls.model_validate(jsontext.loads(raw))
        except ValidationError as exc:
            raise BadMessage(f"not a {cls.__name__}: {explain(exc)}") from exc


def explain(exc: ValidationError) -> str:
    """What is wrong, with the names of the fields, in one line for a client."""
    problems = []
    for error in exc.errors(include_url=False):
        field = ".".join(map(str, error["loc"]))
        problem = error["msg"].removeprefix("Value error, ")
        problems.append(f"{field}: {problem}" if field else problem)
    return "; ".join(problems)


class Request(Message):
    """A command or a call of a service endpoint; the subject says which.

    `id` names the request: the owner answers a repeated id with its first answer. `user` is the authenticated
    user, set by the gateway. `budget_ms` is how long the sender will wait, from the moment it sent this.
    """

    id: str
    user: str
    budget_ms: int
    payload: dict[str, Any]
    traceparent: str | None = None


def answer(payload: dict[str, Any] | bytes) -> bytes:
    """A reply that says yes; bytes are JSON text and are spliced in as they are."""
    body = payload if isinstance(payload, bytes) else jsontext.dumps(payload)
    return b'{"payload":%b}' % body


def refusal(error: TielineError) -> bytes:
    """A reply that says no."""
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.details is not None:
        body["details"] = error.details
    return jsontext.dumps({"error": body})


def outcome(reply: bytes) -> dict[str, Any]:
    """What a reply says. Raises Refused with the peer's code, BadMessage for anything that is no reply."""
    value = jsontext.loads(reply)
    if isinstance(value, dict):
        if isinstance(payload := value.get("payload"), dict):
            return payload
        if isinstance(error := value.get("error"), dict):
            code = error.get("code")
            known = Code(code) if isinstance(code, str) and code in _CODES else Code.INTERNAL
            details = error.get("details")
            raise Refused(
                known,
                str(error.get("message", "refused")),
                details=details if isinstance(details, dict) else None,
            )
    raise BadMessage("not a reply")


_CODES = frozenset(Code)

SessionState = Literal["opening", "ready", "closing", "closed", "failed"]


class SessionRecord(Message):
    """A coding session, in the bucket of sessions. No secret stands in it: gateways read it too."""

    session: str
    user: str
    executor: str
    agent: str
    workspace: str
    title: str = ""
    remotes: tuple[str, ...] = ()
    created: int
    updated: int
    wanted: Literal["open", "closed"] = "open"
    state: SessionState = "opening"
    reason: str | None = None
    acp_session: str | None = None


class InstanceRecord(Message):
    """Where a session's agentctl is, in a bucket that nobody but streams reads."""

    instance: str
    url: str
    token: str = ""
    pid: int | None = None
    agent_pid: int | None = None  # of the agent that has the session's conversation


class ThreadRecord(Message):
    """A chat thread, in the bucket of threads. Its messages stand in its log."""

    thread: str
    user: str
    title: str = ""
    model: str | None = None
    instructions: str = ""
    created: int
    updated: int


class OpenThread(Message):
    """A thread with something to do, in the bucket of threads: what wakes another replica when its owner dies."""

    thread: str
    user: str


class OwnerRecord(Message):
    """Who owns a session or thread; the revision of the write that took it is the epoch."""

    holder: str
    released: bool = False


class LogHead(Message):
    """The answer to the command `head`, one for each log (see `reader.Head`)."""

    epoch: int
    last: int
    confirmed: int
    at: int


class Changed(Message):
    """One of a user's lists changed (the frontend's notification `changed`)."""

    what: Literal["session", "thread", "remote"]
    id: str
    change: Literal["added", "updated", "removed"]
