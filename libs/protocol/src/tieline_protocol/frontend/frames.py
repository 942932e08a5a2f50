"""Pure: the frames of the frontend protocol: read from text, written ready for a socket."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from tieline_protocol import jsontext
from tieline_protocol.batch import frame
from tieline_protocol.errors import BadMessage, TielineError

_KINDS = ("request", "response", "error", "notification")
_MAX_ID = 256
_MAX_ACTION = 128

FrameId = str | int | None


class Frame(NamedTuple):
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
