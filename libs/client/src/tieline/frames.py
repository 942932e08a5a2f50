"""Pure: the frames of the frontend protocol: JSON objects in text frames."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from tieline.errors import CODES, Disconnected, TielineError

Kind = Literal["request", "response", "error", "notification"]
_KINDS = ("request", "response", "error", "notification")


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. `id` is None in a notification."""

    kind: Kind
    action: str
    payload: dict[str, Any]
    id: str | None = None
    traceparent: str | None = None


def encode(frame: Frame) -> bytes:
    """The text of a frame. A lone half of a surrogate pair travels as its escape."""
    value: dict[str, Any] = {"type": frame.kind, "action": frame.action, "payload": frame.payload}
    if frame.id is not None:
        value["id"] = frame.id
    if frame.traceparent is not None:
        value["metadata"] = {"traceparent": frame.traceparent}
    try:
        return orjson.dumps(value)
    except TypeError:  # orjson takes neither lone surrogates nor numbers above 64 bits
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def decode(text: bytes) -> Frame | None:
    """What a text says; None where it is no frame, which a client ignores like everything that it does not know."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            value = json.loads(text)  # lone surrogates
        except (ValueError, RecursionError):
            return None
    if not isinstance(value, dict):
        return None
    kind = value.get("type", "request")
    action = value.get("action")
    payload = value.get("payload")
    id = value.get("id")
    metadata = value.get("metadata")
    trace = metadata.get("traceparent") if isinstance(metadata, dict) else None
    if kind not in _KINDS or not isinstance(action, str | None) or not isinstance(id, str | None):
        return None
    told = payload if isinstance(payload, dict) else {}
    return Frame(kind, action or "", told, id, trace if isinstance(trace, str) else None)


def error(payload: dict[str, Any]) -> TielineError:
    """The error that an `error` frame tells of; a code that we do not know counts as `internal`."""
    code = payload.get("code")
    details = payload.get("details")
    return TielineError(
        code if code in CODES else "internal",
        str(payload.get("message", "")),
        details if isinstance(details, dict) else None,
    )


def disconnected(close_code: int | None, reason: str) -> Disconnected:
    """The error that a close frame means. The reason is JSON where it says when to come back."""
    try:
        value = json.loads(reason)
    except ValueError:
        value = None
    wait = value.get("retry_after_ms") if isinstance(value, dict) else None
    return Disconnected(close_code, reason, wait if isinstance(wait, int) else None)
