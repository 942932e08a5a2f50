"""Pure: what can go wrong, for somebody who uses the client.

TielineError        the server said no, or could not be asked: `code` is one of CODES
├── Disconnected    the connection ended; `come_back` says whether to connect again
└── TooSlow         a subscription was not read fast enough: subscribe again from `subscription.cursors`
"""

from __future__ import annotations

from typing import Any

CODES = frozenset(
    {
        "bad_request",
        "unauthorized",
        "not_found",
        "conflict",
        "busy",
        "rate_limited",
        "too_large",
        "unavailable",
        "timeout",
        "cancelled",
        "disconnected",
        "invalid_arguments",
        "unknown_action",
        "internal",
    }
)


class TielineError(Exception):
    """`code` is for programs, `message` for people, `details` (or None) for logs."""

    def __init__(self, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.details = details


class Disconnected(TielineError):
    """The connection ended. `close_code` is None where it broke without a word."""

    def __init__(
        self, close_code: int | None = None, reason: str = "", retry_after_ms: int | None = None
    ) -> None:
        if close_code is None:
            message = "the connection broke"
        else:
            message = f"the connection was closed: {close_code} {reason}".rstrip()
        super().__init__("disconnected", message)
        self.close_code = close_code
        self.retry_after_ms = retry_after_ms

    @property
    def come_back(self) -> bool:
        """Whether connecting again may help: always, unless the server said that it does not."""
        return self.close_code is None or not 4500 <= self.close_code <= 4999


class TooSlow(TielineError):
    """More events were waiting to be read than the subscription holds."""

    def __init__(self, waiting: int) -> None:
        super().__init__("busy", f"more than {waiting:,} bytes of events were not read in time")
