"""Pure: what the owner of a remote says of a call, read without decoding the result.

The rule for results: one is taken when it is strict JSON that we could have written ourselves (jsontext): no NaN, no
Infinity, no half of a surrogate pair, at most 254 levels deep. It goes on as the text that it is, numbers included.
Anything else ends that call with an error, and nothing but that call: also a frame that cannot be parsed at all, as
long as it shows the action `remote-call-result` and a requestId. Where result and error are told, the error counts.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal, NamedTuple

import orjson
from tieline_protocol import jsontext
from tieline_protocol.errors import BadMessage, Code
from tieline_protocol.frontend import Frame, FrameId

ACTION = "remote-call-result"

_LEVELS = 250  # fewer brackets than this cannot be nested too deeply, so nothing needs to be tried
_MAX_ID = 140
_MAX_ERROR = 10_000  # characters of an error's text that are passed on

# The layout in which clients write a result: all that stands before it, as far as it must be known.
_BEFORE = re.compile(
    r"""\s*\{
    (?P<members>(?:\s*"(?:type|action|id)"\s*:\s*(?:"[^"\\\x00-\x1f]{1,256}"|-?\d{1,18})\s*,)+)
    \s*"payload"\s*:\s*\{\s*"requestId"\s*:\s*"(?P<request>[A-Za-z0-9_-]{1,140})"\s*,\s*"result"\s*:""",
    re.VERBOSE,
)
_SHOWS_ACTION = re.compile(r'"action"\s*:\s*"remote-call-result"')
_SHOWS_REQUEST = re.compile(r'"requestId"\s*:\s*"([A-Za-z0-9_-]{1,140})"')
_USUAL = '{"type":"notification","action":"remote-call-result","payload":{"requestId":"'
_NEXT = '","result":'
_REQUEST = re.compile(r"[A-Za-z0-9_-]{1,140}\Z")

_SPACE = " \t\r\n"  # JSON's own; it is no part of a value

_scan = json.JSONDecoder().raw_decode
_blank = re.compile(r"[ \t\r\n]*")


class Told(NamedTuple):
    """A result (its JSON text) or an error ({error, code} as JSON text). `id` is None in a notification."""

    request_id: str
    verb: Literal["result", "error"]
    body: bytes
    id: FrameId = None


def failed(message: str, code: str = Code.INTERNAL) -> bytes:
    """The body of an error."""
    return jsontext.dumps({"error": message[:_MAX_ERROR], "code": code})


def quickly(text: str) -> Told | None:
    """A good result in its usual layout; None for every other text, which may be anything."""
    if text.startswith(_USUAL):  # what the regular expression below would find, at a fifth of its cost
        end = text.find('"', len(_USUAL))
        request_id = text[len(_USUAL) : end]
        if text.startswith(_NEXT, end) and text.endswith("}}") and _REQUEST.match(request_id):
            raw = text[end + len(_NEXT) : -2].strip(_SPACE).encode()
            return Told(request_id, "result", raw) if _refused(raw) is None else None
    match = _BEFORE.match(text)
    if match is None or not text.endswith("}}"):
        return None
    members = orjson.loads("{" + match["members"].rstrip()[:-1] + "}")
    kind, id = members.get("type", "request"), members.get("id")
    if members.get("action") != ACTION or kind not in ("request", "notification"):
        return None
    if (id is None) != (kind == "notification"):
        return None
    raw = text[match.end() : -2].strip(_SPACE).encode()
    return Told(match["request"], "result", raw, id) if _refused(raw) is None else None


def told(frame: Frame, text: str) -> Told:
    """What a parsed frame says. Raises BadMessage where it names no call."""
    payload = frame.payload
    request_id = payload.get("requestId")
    if not isinstance(request_id, str) or not 0 < len(request_id) <= _MAX_ID:
        raise BadMessage(f"requestId: a text of 1 to {_MAX_ID} characters")
    if (error := payload.get("error")) is not None:
        code = payload.get("code")
        said = error if isinstance(error, str) else jsontext.dumps(error).decode()
        return Told(
            request_id, "error", failed(said, code if isinstance(code, str) else Code.INTERNAL), frame.id
        )
    if "result" not in payload:
        return Told(request_id, "error", failed("the answer has neither a result nor an error"), frame.id)
    try:
        raw = _member(_member(text, "payload"), "result").encode()
    except (ValueError, RecursionError):
        return Told(request_id, "error", failed(_bad("nested too deeply")), frame.id)
    reason = _refused(raw)
    if reason is not None:
        return Told(request_id, "error", failed(_bad(reason)), frame.id)
    return Told(request_id, "result", raw, frame.id)


def salvaged(text: str, reason: str) -> list[Told]:
    """The calls that a text which is no JSON may end; only those that are awaited from there can be meant."""
    if not _SHOWS_ACTION.search(text):
        return []
    body = failed(_bad(reason))
    return [Told(found, "error", body) for found in dict.fromkeys(_SHOWS_REQUEST.findall(text))]


def _bad(reason: str) -> str:
    return f"the result cannot be passed on: {reason}"


def _refused(raw: bytes) -> str | None:
    """Why a result cannot be taken; None where it can."""
    try:
        value: Any = orjson.loads(raw)
        if raw.count(b"[") + raw.count(b"{") > _LEVELS:
            orjson.dumps(value)
    except orjson.JSONDecodeError as exc:
        deep = "depth limit" in str(exc) or "ecursion" in str(exc)
        return "nested too deeply" if deep else f"not valid JSON: {exc}"
    except TypeError:
        return "nested too deeply"
    return None


def _member(text: str, name: str) -> str:
    """The text of an object's member; of the last one where there are several. `text` parses. Raises ValueError."""
    found = ""
    where = _after_blanks(text, 0) + 1
    while True:
        where = _after_blanks(text, where)
        if text[where] == "}":
            return found
        key, where = _scan(text, where)
        begin = _after_blanks(text, _after_blanks(text, where) + 1)
        _, where = _scan(text, begin)
        if key == name:
            found = text[begin:where]
        where = _after_blanks(text, where)
        if text[where] == ",":
            where += 1


def _after_blanks(text: str, where: int) -> int:
    match = _blank.match(text, where)
    assert match is not None  # it matches nothing too
    return match.end()
