"""Pure: what the model reads of a call's outcome, and what counts as one.

A non-empty string goes to the model as it is, everything else as JSON text, so that `0`, `""`, `[]`, `null` and
`false` are answers. A failure reads `error: <code>: <message>`. Where both a result and an error came, the error
wins; where neither came, that is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tieline_protocol import jsontext
from tieline_protocol.errors import BadMessage, Code
from tieline_protocol.remotes import RESULT_BYTES


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended. There is an error exactly when there is a code."""

    result: Any = None
    error: str | None = None
    code: Code | None = None

    def text(self, most: int) -> str:
        """What the model reads, at most about `most` characters of it."""
        if self.error is not None:
            return _cut(f"error: {self.code}: {self.error}", most)
        if isinstance(self.result, str) and self.result:
            return _cut(self.result, most)
        return _cut(jsontext.dumps(self.result).decode(), most)


def success(result: Any) -> Outcome:
    """What a tool returned, as its JSON says it; an error when JSON cannot say it or there is too much of it."""
    try:
        raw = jsontext.dumps(result)
        if len(raw) > RESULT_BYTES:
            return failure(Code.TOO_LARGE, f"the result has {len(raw)} bytes, more than {RESULT_BYTES}")
        return Outcome(jsontext.loads(raw))
    except BadMessage as exc:
        return failure(Code.INTERNAL, f"the result {exc.message}")


def failure(code: Code, message: str) -> Outcome:
    """A call that gave no result."""
    return Outcome(None, message or "no reason given", code)


def of(fields: Mapping[str, Any]) -> Outcome:
    """The outcome that stands in an event or a frame: `result` or `error`, with or without a `code`."""
    if fields.get("error") is not None:
        error, code = fields["error"], fields.get("code")
        message = error if isinstance(error, str) else jsontext.dumps(error).decode()
        known = Code(code) if isinstance(code, str) and code in set(Code) else Code.INTERNAL
        return failure(known, message)
    if "result" not in fields:
        return failure(Code.INTERNAL, "neither a result nor an error came")
    return Outcome(fields["result"])


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… (cut: {len(text)} characters in all)"
