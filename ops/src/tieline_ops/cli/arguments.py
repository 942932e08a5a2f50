"""Pure: arguments of a remote's function as they stand on a command line; the schema says what a bare word means."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tieline_ops.cli.codes import Exit, Problem

_READ = {"integer", "number", "boolean", "array", "object", "null"}


def parsed(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """`key=text` and `key:=JSON`. A text is read as JSON where the schema wants something else. Raises Problem."""
    properties = schema.get("properties")
    known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    told: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.rstrip(":"):
            raise Problem(f"{word!r} is no argument: key=text, or key:=JSON", Exit.USAGE)
        exactly = key.endswith(":")
        key = key.removesuffix(":")
        told[key] = _value(key, text, exactly, known.get(key))
    return told


def _value(key: str, text: str, exactly: bool, wanted: Any) -> Any:
    types = _types(wanted)
    if not exactly and ("string" in types or not types & _READ):
        return text
    try:
        return json.loads(text)
    except ValueError:
        if exactly:
            raise Problem(f"{key}:= wants JSON, and {text!r} is none", Exit.USAGE) from None
        return text  # the remote says better than we what is wrong with it


def _types(wanted: Any) -> set[str]:
    if not isinstance(wanted, Mapping):
        return set()
    found = wanted.get("type")
    types = {found} if isinstance(found, str) else set(found) if isinstance(found, list) else set()
    for other in wanted.get("anyOf") or wanted.get("oneOf") or []:
        types |= _types(other)
    return types


def usage(function: Mapping[str, Any]) -> str:
    """How a function is called, in one line: `name url=string [limit=integer]`."""
    parameters = function.get("parameters") or {}
    required = set(parameters.get("required") or [])
    words = [str(function.get("name"))]
    for key, wanted in (parameters.get("properties") or {}).items():
        word = f"{key}={'|'.join(sorted(_types(wanted))) or 'any'}"
        words.append(word if key in required else f"[{word}]")
    return " ".join(words)
