"""Pure: the wire of agentctl, a foreign format: its frames, envelopes and error codes. Its HTTP is in agentctl_http.py.

Rule 1: a frame is parsed once, to check it and to learn its type; what is passed on are its own bytes.
Rule 2: optional means omitted: a number may be absent for 0, a list may be null. Unknown types and fields pass.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from tieline_protocol import jsontext
from tieline_protocol.errors import BadMessage, Code, Refused

AGENT_STREAM = "/api/v1/agent/stream"
WORKSPACE_STREAM = "/api/v1/workspace/stream"

MAX_FRAME = 16 * 1024 * 1024  # what a daemon may send in one frame
MAX_EVENT = 7 * 1024 * 1024  # what of it can be an event

_SUSPICIOUS = 1_000  # this many brackets could be deeper than a viewer's parser goes


class Frame(NamedTuple):
    """A checked frame: its type, its value, and its text as it came."""

    type: str
    value: dict[str, Any]
    raw: bytes = b""


def peek(raw: bytes) -> Frame:
    """Check a frame and read its type. Raises BadMessage.

    An event travels inside a frame of ours, which adds two levels to its nesting.
    """
    value = jsontext.loads(raw)
    if not isinstance(value, dict):
        raise BadMessage("not an object")
    type = value.get("type")
    if not isinstance(type, str) or not type:
        raise BadMessage("no type")
    if len(raw) > 2 * _SUSPICIOUS and not _flat(value) and raw.count(b"[") + raw.count(b"{") > _SUSPICIOUS:
        jsontext.loads(b"[[%b]]" % raw)
    return Frame(type, value, raw)


def _flat(value: dict[str, Any]) -> bool:
    """Whether nothing is nested in it, as in most events that are long; cheaper than counting brackets."""
    for item in value.values():  # noqa: SIM110  # any() over a generator takes four times as long
        if isinstance(item, (dict, list)):
            return False
    return True


def is_utf8(raw: bytes) -> bool:
    """Whether a text frame is what the WebSocket protocol allows it to be."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


class Kind(Enum):
    """The families of frames that share the agent socket."""

    EVENT = "event"
    REPLY = "reply"
    REQUEST = "request"
    NEITHER = "neither"


def kind(frame: Frame) -> Kind:
    """To which family a frame of the agent socket belongs. `error` and `response` with an id are never events."""
    value = frame.value
    match frame.type:
        case "response":
            return Kind.REPLY
        case "error" if "id" in value or "action" in value:
            return Kind.REPLY
        case "request" if "action" in value:
            return Kind.REQUEST
        case "notification" if "action" in value:
            return Kind.NEITHER
    return Kind.EVENT


# Envelopes of the agent socket. `timestamp` is left out: absent is fine, a malformed one loses the frame.


def request(id: str, action: str, payload: dict[str, Any] | None, traceparent: str | None = None) -> bytes:
    """A request to the daemon."""
    trace = {} if traceparent is None else {"metadata": {"traceparent": traceparent}}
    return jsontext.dumps({"id": id, "type": "request", "action": action, "payload": payload, **trace})


def response(id: str, action: str, payload: dict[str, Any]) -> bytes:
    """The answer to a request of the daemon's."""
    return jsontext.dumps({"id": id, "type": "response", "action": action, "payload": payload})


def error(id: str, action: str, code: str, message: str) -> bytes:
    """A refusal of a request of the daemon's."""
    payload = {"code": code, "message": message}
    return jsontext.dumps({"id": id, "type": "error", "action": action, "payload": payload})


UNKNOWN_ACTION = "UNKNOWN_ACTION"

_CODES = {
    "BAD_REQUEST": Code.BAD_REQUEST,
    "VALIDATION_ERROR": Code.BAD_REQUEST,
    "NOT_FOUND": Code.NOT_FOUND,
    "CONFLICT": Code.CONFLICT,
    UNKNOWN_ACTION: Code.UNKNOWN_ACTION,
}


def refused(payload: object) -> Refused:
    """What an envelope of type `error` means for a client; whatever stands in it, the message is readable."""
    if isinstance(payload, dict):
        code = payload.get("code")
        message = payload.get("message")
        text = message if isinstance(message, str) and message else "the daemon refused without a reason"
        mapped = _CODES.get(code, Code.INTERNAL) if isinstance(code, str) else Code.INTERNAL
        return Refused(mapped, text, details={"agentctl": payload})
    text = payload if isinstance(payload, str) and payload else "the daemon refused without a reason"
    return Refused(Code.INTERNAL, text)


def payload(envelope: dict[str, Any]) -> dict[str, Any]:
    """What a reply says. Raises Refused for an `error`."""
    body = envelope.get("payload")
    if envelope.get("type") == "error":
        raise refused(body)
    return body if isinstance(body, dict) else {}


# Frames of the workspace socket, client to server; `timestamp` is Unix milliseconds here.


def shell_input(data: str, now_ms: int) -> bytes:
    return jsontext.dumps({"type": "shell_input", "timestamp": now_ms, "data": data})


def shell_resize(cols: int, rows: int, now_ms: int) -> bytes:
    return jsontext.dumps({"type": "shell_resize", "timestamp": now_ms, "cols": cols, "rows": rows})


def ping(now_ms: int) -> bytes:
    return jsontext.dumps({"type": "ping", "timestamp": now_ms})
