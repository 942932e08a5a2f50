"""Pure: JSON at the edges: strict about what leaves us, exact about what passes through.

Rule 1: what is checked here parses everywhere: UTF-8, no NaN or Infinity, nesting within 1,024 levels (254 in what
        we write), whatever the Python version: the limits are the parser's own, not the interpreter's stack.
Rule 2: an escaped lone surrogate (half an emoji from JavaScript) is legal JSON text and stays as it is in
        bytes that pass through; wherever we decode it, it becomes U+FFFD, since no encoder takes it.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from tieline_protocol.errors import BadMessage

# A \uD8xx–\uDBxx that no \uDCxx–\uDFxx follows, or a \uDCxx–\uDFxx that none precedes; the first group keeps
# escaped backslashes together, so that `\\ud83d` (a backslash and five letters) is not taken for one.
_SURROGATES = re.compile(
    rb"(\\\\)|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def _mend(match: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if match[2] else match[0]


def loads(raw: bytes | bytearray | memoryview | str) -> Any:
    """The value of a JSON text.

    Raises BadMessage for anything that is not strict JSON, with a reason fit for a client.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as first:
        exc = first
    text = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else bytes(raw)
    mended = _SURROGATES.sub(_mend, text)
    if mended != text:
        try:
            return orjson.loads(mended)
        except orjson.JSONDecodeError as again:
            exc = again
    raise BadMessage(f"not valid JSON: {_reason(exc)}") from exc


def _reason(exc: Exception) -> str:
    text = str(exc)
    return "nested too deeply" if "depth limit" in text or "ecursion" in text else text


def dumps(value: Any) -> bytes:
    """Compact JSON. Lone surrogates in strings become U+FFFD, NaN and Infinity become null.

    Raises BadMessage for what JSON cannot say (a set, an integer over 64 bits) and for what is nested too deeply.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        pass
    try:
        return orjson.dumps(_clean(value))
    except (TypeError, RecursionError) as exc:
        raise BadMessage(f"cannot be written as JSON: {_reason(exc)}") from exc


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else _whole(value)
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    return value


def _whole(text: str) -> str:
    # Pairs that a peer wrote as two escapes are joined on the way; a half alone becomes U+FFFD.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
