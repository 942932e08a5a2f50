"""Pure: the codes with which the gateway closes a socket, each saying whether to come back.

4000–4499: connect again, not before `retry_after_ms`; 4500–4999: the same again gives the same answer. What the
WebSocket protocol itself defines (1007 not UTF-8, 1009 too large) is the library's business.
"""

from __future__ import annotations

from enum import IntEnum

import orjson


class CloseCode(IntEnum):
    """Why we closed."""

    RESTARTING = 4000  # this gateway stops; another one answers
    AUTH_TIMEOUT = 4001  # no token came in time
    TOO_SLOW = 4002  # what was sent is not being read
    RESYNC = 4003  # a followed log is not what it was: subscribe again
    UNAUTHORIZED = 4500  # the token was refused
    EXPIRED = 4501  # the token ran out and no newer one came

    @property
    def come_back(self) -> bool:
        return self < 4500

    @property
    def meaning(self) -> str:
        return _MEANING[self]


_MEANING = {
    CloseCode.RESTARTING: "the gateway is restarting",
    CloseCode.AUTH_TIMEOUT: "no token in time",
    CloseCode.TOO_SLOW: "what was sent was not read",
    CloseCode.RESYNC: "a followed log begins anew",
    CloseCode.UNAUTHORIZED: "the token was refused",
    CloseCode.EXPIRED: "the token has expired",
}


def reason(code: CloseCode, retry_after_ms: int = 0) -> str:
    """The reason of a close frame: JSON of at most 123 bytes."""
    body: dict[str, object] = {"message": code.meaning}
    if code.come_back:
        body["retry_after_ms"] = retry_after_ms
    return orjson.dumps(body).decode()
