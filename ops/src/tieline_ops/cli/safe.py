"""Pure: texts of peers as a terminal may be given them: what would steer it is shown, never obeyed.

Not printable are all control characters (so every escape sequence is plain text), the C1 controls, which some
terminals obey without an ESC, and those that turn the direction of writing.
"""

from __future__ import annotations

import json
import re
from typing import Any

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0", "\x1b": "\\e"}
_STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def line(text: object) -> str:
    """A text within one line."""
    return _STEERING.sub(_escape, str(text))


def block(text: object) -> str:
    """A text of several lines; its line ends and tabs stay."""
    plain = str(text).replace("\r\n", "\n")
    return "\n".join("\t".join(line(part) for part in row.split("\t")) for row in plain.split("\n"))


def cut(text: object, width: int) -> str:
    """A text within one line of so many characters."""
    shown = line(text)
    return shown if len(shown) <= width else shown[: max(width - 1, 0)] + "…"


def jsoned(value: Any, indent: int | None = None) -> str:
    """A value as JSON that reads well and steers nothing; it is the same value when it is read back."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, default=str)
    if indent is not None:
        return "\n".join(_STEERING.sub(_unicode, row) for row in text.split("\n"))
    return _STEERING.sub(_unicode, text)


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    return _NAMED.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def _unicode(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
