"""Pure: JSON as it must stand on our wires, whatever an agent or a peer wrote.

One rule for everybody: NaN and infinities are read as null; a lone surrogate in an agent's text is kept and
written as its escape, in what a peer sends us it becomes U+FFFD; what is nested too deeply is refused when read and
cut when written. Nothing but `BadJson` is ever raised.
"""

import json
import math
import re
from typing import Any

import orjson

DEEPEST = 200  # of what needs the forgiving reader, or the forgiving writer; orjson reads 1,024 levels and writes 254
_CUT = "(nested too deeply)"
_NESTING = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


class BadJson(ValueError):
    """Not a JSON text, or nested too deeply."""


def loads(data: bytes | str, *, keep_surrogates: bool = False) -> Any:
    """Read one JSON text, more forgiving than orjson and never failing with anything but `BadJson`."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    if _depth(text) > DEEPEST:
        raise BadJson("nested too deeply")
    try:
        value = json.loads(text, parse_constant=lambda _: None, parse_float=_finite)
    except ValueError as error:
        raise BadJson(str(error)) from None
    return value if keep_surrogates else _valid_text(value)


def dumps(value: Any) -> bytes:
    """Write one JSON text without line breaks; it is valid UTF-8 whatever is in the value."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(_writable(value, DEEPEST), separators=(",", ":"), allow_nan=False).encode()


def _valid_text(value: Any) -> Any:
    """The same value with U+FFFD in place of lone surrogates."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return value
    if isinstance(value, list):
        return [_valid_text(item) for item in value]
    if isinstance(value, dict):
        return {_valid_text(key): _valid_text(item) for key, item in value.items()}
    return value


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _depth(text: str) -> int:
    deepest = depth = 0
    for match in _NESTING.finditer(text):
        token = match[0]
        if token in ("[", "{"):
            depth += 1
            deepest = max(deepest, depth)
        elif token in ("]", "}"):
            depth -= 1
    return deepest


def _writable(value: Any, left: int) -> Any:
    if isinstance(value, list | tuple | dict) and not left:
        return _CUT
    if isinstance(value, dict):
        return {str(key): _writable(item, left - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(item, left - 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)
