"""Pure: the envelope of the agent stream, read and written. No sockets, no clock.

Requests, responses and errors travel in it; events are bare objects and never come through here.
A payload is looked into by `text`, `flag`, `number` and `items`, which refuse a wrong JSON type and never coerce.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from tieline_agentctl import jsontext

BAD_REQUEST = "BAD_REQUEST"
NOT_FOUND = "NOT_FOUND"
INTERNAL_ERROR = "INTERNAL_ERROR"
VALIDATION_ERROR = "VALIDATION_ERROR"
CONFLICT = "CONFLICT"
UNKNOWN_ACTION = "UNKNOWN_ACTION"

_RFC3339 = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?"
    r"(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
)


class BadFrame(ValueError):
    """A frame that is not an envelope. It is dropped, the connection stays."""


class RequestFailed(Exception):
    """A request's answer is an error envelope with this code and message."""

    def __init__(self, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


@dataclass(frozen=True, slots=True)
class Envelope:
    """One frame that a peer sent."""

    id: str
    type: str
    action: str
    payload: Any = field(default=None)
    traceparent: str | None = None


def decode(text: str | bytes) -> Envelope:
    """Read a frame. A malformed timestamp spoils the whole frame; an absent one does not."""
    try:
        frame = jsontext.loads(text)
    except jsontext.BadJson as error:
        raise BadFrame(str(error)) from None
    if not isinstance(frame, dict):
        raise BadFrame("not an object")
    for name in ("id", "type", "action"):
        if not isinstance(frame.get(name), str | None):
            raise BadFrame(f"{name} is not a string")
    stamp = frame.get("timestamp")
    if stamp is not None and not (isinstance(stamp, str) and _RFC3339.fullmatch(stamp)):
        raise BadFrame("timestamp is not RFC 3339")
    metadata = frame.get("metadata")
    if metadata is not None and not (
        isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    ):
        raise BadFrame("metadata is not a map of strings")
    trace = (metadata or {}).get("traceparent")
    return Envelope(
        frame.get("id") or "", frame.get("type") or "", frame.get("action") or "", frame.get("payload"), trace
    )


def request(id: str, action: str, payload: Any, timestamp: str, traceparent: str | None = None) -> bytes:
    """A request of ours to the peer; `traceparent` says what it is a part of."""
    metadata = {} if traceparent is None else {"metadata": {"traceparent": traceparent}}
    return _encode(id, "request", action, payload, timestamp, **metadata)


def response(asked: Envelope, payload: Any, timestamp: str) -> bytes:
    """The answer to a request that was carried out."""
    return _encode(asked.id, "response", asked.action, payload, timestamp)


def error(asked: Envelope, failure: RequestFailed, timestamp: str) -> bytes:
    """The answer to a request that was not."""
    payload: dict[str, Any] = {"code": failure.code, "message": failure.message}
    if failure.details:
        payload["details"] = failure.details
    return _encode(asked.id, "error", asked.action, payload, timestamp)


def _encode(id: str, type: str, action: str, payload: Any, timestamp: str, **more: Any) -> bytes:
    return jsontext.dumps(
        {"id": id, "type": type, "action": action, "payload": payload, "timestamp": timestamp, **more}
    )


def fields(payload: Any) -> dict[str, Any]:
    """The payload as an object; null stands for an empty one."""
    if payload is None:
        return {}
    if not isinstance(payload, dict):
        raise RequestFailed(BAD_REQUEST, "invalid request: payload is not an object")
    return payload


def text(payload: dict[str, Any], name: str) -> str:
    """A string, "" when absent."""
    value = payload.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RequestFailed(BAD_REQUEST, f"invalid request: {name} is not a string")
    return value


def flag(payload: dict[str, Any], name: str) -> bool:
    """A boolean, false when absent."""
    value = payload.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise RequestFailed(BAD_REQUEST, f"invalid request: {name} is not a boolean")
    return value


def number(payload: dict[str, Any], name: str) -> int:
    """An unsigned integer of 64 bits, 0 when absent."""
    value = payload.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
        raise RequestFailed(BAD_REQUEST, f"invalid request: {name} is not an unsigned integer")
    return value


def items(payload: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects, empty when absent."""
    value = payload.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise RequestFailed(BAD_REQUEST, f"invalid request: {name} is not a list of objects")
    return value


def texts(payload: dict[str, Any], name: str) -> list[str]:
    """A list of strings, empty when absent."""
    value = payload.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise RequestFailed(BAD_REQUEST, f"invalid request: {name} is not a list of strings")
    return value


def strings(payload: dict[str, Any], name: str) -> dict[str, str]:
    """A map of strings, empty when absent."""
    value = payload.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise RequestFailed(BAD_REQUEST, f"invalid request: {name} is not a map of strings")
    return value
