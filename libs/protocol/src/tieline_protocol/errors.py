"""Pure: every error we raise on purpose, and the closed list of codes that a client may see.

TielineError            code and message are fit for a client; details may be None
├── ProtocolError       a peer broke the rules: never retried             (bad_request)
│   ├── BadSubject      an id that cannot be part of a subject
│   ├── BadMessage      bytes that are not the message they should be
│   └── BadCursor       a cursor that we did not give
├── Unavailable         a peer is away: trying again may help             (unavailable)
│   ├── NoResponders    nobody subscribes: in a cluster almost certainly not delivered
│   ├── FateUnknown     the connection broke or nobody answered: it may have been delivered
│   └── TimedOut        the deadline passed: it may have been delivered   (timeout)
└── Refused             a peer understood and said no                     (any code)
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Code(StrEnum):
    """What can be the `code` of an error that a client sees (frontend-protocol, "Frames")."""

    BAD_REQUEST = "bad_request"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    BUSY = "busy"
    RATE_LIMITED = "rate_limited"
    TOO_LARGE = "too_large"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    DISCONNECTED = "disconnected"
    INVALID_ARGUMENTS = "invalid_arguments"
    UNKNOWN_ACTION = "unknown_action"
    INTERNAL = "internal"


class TielineError(Exception):
    """Base of all errors that we raise on purpose."""

    code: Code = Code.INTERNAL

    def __init__(self, message: str, *, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class ProtocolError(TielineError):
    """A peer broke the rules. Sending the same again gives the same answer."""

    code = Code.BAD_REQUEST


class BadSubject(ProtocolError):
    """An id or name that cannot become part of a subject."""


class BadMessage(ProtocolError):
    """Bytes that are not the message, event or batch that they should be."""


class BadCursor(ProtocolError):
    """A cursor that is not one of ours."""


class Unavailable(TielineError):
    """A peer cannot be reached now."""

    code = Code.UNAVAILABLE


class NoResponders(Unavailable):
    """Nobody subscribes to the subject of a request."""


class FateUnknown(Unavailable):
    """The connection broke under a request: whether it was delivered is not known."""


class TimedOut(Unavailable):
    """No answer within the deadline: whether the request was delivered is not known."""

    code = Code.TIMEOUT


class Refused(TielineError):
    """A peer understood the request and said no."""

    def __init__(self, code: Code, message: str, *, details: dict[str, Any] | None = None) -> None:
        super().__init__(message, details=details)
        self.code = code
