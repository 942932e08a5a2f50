"""Pure: JSON that always parses. Nothing that the file system or a process can say makes it fail."""

import re
from typing import Any

import orjson

_HALVES = re.compile("[\ud800-\udfff]")


def dump(body: Any) -> bytes:
    """Names from the file system may hold bytes that are no UTF-8; JSON text cannot, so they become U+FFFD."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return orjson.dumps(_clean(body))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _HALVES.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_clean(name): _clean(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value
