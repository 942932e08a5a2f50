"""Pure: what a provider's refusal means: which code the user sees, and whether to ask again, and when."""

from __future__ import annotations

import email.utils
import math
from collections.abc import Mapping
from dataclasses import dataclass

from tieline_protocol.errors import Code

_SHOWN = 500


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a request failed. `after` is how long to wait, in seconds, where the provider says it."""

    code: Code
    message: str
    retry: bool
    after: float | None = None


def trouble_of_status(status: int, kind: str | None, message: str, after: float | None) -> Trouble:
    """The trouble that an HTTP status tells of; `kind` is the provider's own code for it."""
    said = message[:_SHOWN]
    if status in (401, 403):
        # The message often quotes the key.
        return Trouble(
            Code.UNAUTHORIZED, f"the model's provider refused our key (HTTP {status})", retry=False
        )
    if kind == "insufficient_quota":
        return Trouble(
            Code.RATE_LIMITED, f"the account at the model's provider is used up: {said}", retry=False
        )
    if status == 429:
        return Trouble(Code.RATE_LIMITED, f"the model's provider is busy: {said}", retry=True, after=after)
    if status in (408, 409) or status >= 500:
        return Trouble(Code.UNAVAILABLE, f"the model's provider failed: {said}", retry=True, after=after)
    code = Code.TOO_LARGE if status == 413 else Code.BAD_REQUEST
    return Trouble(code, f"the model's provider refused the request: {said}", retry=False)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait by `retry-after-ms` or `Retry-After` (seconds, or a date; `now` is Unix seconds)."""
    if (exact := _number(headers.get("retry-after-ms"))) is not None:
        return exact / 1000
    said = headers.get("retry-after")
    if (seconds := _number(said)) is not None or said is None:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(said).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None
