"""Pure: JSON as it must stand on our wires, whatever an agent or a peer wrote.

One rule for everybody: NaN and infinities are read as null; a lone surrogate in an agent's text is kept and
written as its escape; what a peer sends us gets U+FFFD instead (`valid_text`); what is nested deeper than
`DEEPEST` is refused when read and cut when written. Nothing but `BadJson` is ever raised.
"""

import json
import math
from typing import Any

import orjson

DEEPEST = 1_000
_DEEPEST_WRITTEN = 200
_CUT = "(nested too deeply)"


class BadJson(ValueError):
    """Not a JSON text, or nested too deeply."""


def loads(data: bytes | str) -> Any:
    """Read one JSON text, more forgiving than orjson and never failing with anything but `BadJson`."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    try:
        value = json.loads(text, parse_constant=lambda _: None, parse_float=_finite)
    except RecursionError:
        raise BadJson("nested too deeply") from None
    except ValueError as error:
        raise BadJson(str(error)) from None
    if _deeper_than(value, DEEPEST):
        raise BadJson("nested too deeply")
    return value


def dumps(value: Any) -> bytes:
    """Write one JSON text without line breaks; it is valid UTF-8 whatever is in the value."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(_writable(value, _DEEPEST_WRITTEN), separators=(",", ":"), allow_nan=False).encode()


def valid_text(value: Any) -> Any:
    """The same value with U+FFFD in place of lone surrogates."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return value
    if isinstance(value, list):
        return [valid_text(item) for item in value]
    if isinstance(value, dict):
        return {valid_text(key): valid_text(item) for key, item in value.items()}
    return value


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    while level and limit:
        limit -= 1
        below: list[Any] = []
        for item in level:
            if isinstance(item, list):
                below.extend(item)
            elif isinstance(item, dict):
                below.extend(item.values())
        level = below
    return any(isinstance(item, list | dict) for item in level)


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
