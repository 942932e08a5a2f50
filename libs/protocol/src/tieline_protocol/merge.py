"""Pure: neighbouring pieces of output of one stream become one event, exact to the character.

The one case in which an event is rebuilt. Half a surrogate pair at the end of one piece and the other half at the
beginning of the next become one character; a half that stays alone is escaped as it came.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from tieline_protocol import jsontext

# Escaped halves of characters. What a terminal makes a daemon escape most is another: ESC.
_HALVES = re.compile(rb"\\u[dD][89a-fA-F]")

MERGED_BYTES = 64 * 1024  # a merged event stays small enough for a viewer to take in one go


def key(type: str, value: dict[str, Any]) -> tuple[str, ...] | None:
    """What neighbours must have in common to be merged; None for what is never merged."""
    if type == "shell_output" and isinstance(value.get("data", ""), str):
        return (type,)
    if type == "process_output":
        output = value.get("process_output")
        if isinstance(output, dict) and isinstance(output.get("data", ""), str):
            return (type, str(output.get("process_id", "")), str(output.get("stream", "")))
    return None


def parse(raw: bytes) -> Any:
    """A checked event, with halves of surrogate pairs kept, which only the standard library does."""
    if not _HALVES.search(raw):
        return jsontext.loads(raw)
    try:
        return json.loads(raw)
    except RecursionError:  # nested deeper than the interpreter's stack allows
        return jsontext.loads(raw)


def merge(raws: list[bytes]) -> bytes:
    """One event with the text of all of them and the plain fields of the first."""
    if len(raws) == 1:
        return raws[0]
    values = [parse(raw) for raw in raws]
    first = _plain(values[0])
    if first["type"] == "shell_output":
        first["data"] = "".join(value.get("data", "") for value in values)
    else:
        output = _plain(values[0]["process_output"])
        output["data"] = "".join(value["process_output"].get("data", "") for value in values)
        first["process_output"] = output
    try:
        return orjson.dumps(first)
    except orjson.JSONEncodeError:
        # Escaped, so that two halves that now stand side by side are one character for whoever reads it.
        return json.dumps(first, separators=(",", ":")).encode("ascii")


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in value.items() if isinstance(item, (str, int, float, bool))}
