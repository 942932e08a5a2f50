"""Pure: who may connect: origins of browsers, claims of tokens.

Rule 1: an origin passes when it is in the list, compared whole (scheme, host, port); never by prefix or pattern.
Rule 2: identity is the `sub` of a token that we signed; nothing that a client says elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import jwt
from jwt.types import Options
from tieline_protocol import subjects
from tieline_protocol.errors import BadSubject, Code, Refused

ALGORITHM = "HS256"
MIN_SECRET = 32  # bytes; RFC 7518, section 3.2
BEARER = "bearer."

_DEFAULT_PORTS = {"http": 80, "https": 443}
# The times are compared with a clock that the caller gives.
_CHECKS: Options = {"require": ["sub", "exp"], "verify_exp": False, "verify_iat": False, "verify_nbf": False}


def normal_origin(text: str) -> str | None:
    """An origin in its one form, `scheme://host[:port]`; None for what is no origin (a path, user info, null)."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    host = parts.hostname
    if parts.scheme not in _DEFAULT_PORTS or not host or "@" in parts.netloc:
        return None
    if parts.path or parts.query or parts.fragment or any(c <= " " or c in "\\?#" for c in text):
        return None
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + ("" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}")


def allowed_origins(listed: str) -> frozenset[str]:
    """The comma-separated list of a configuration. Raises ValueError for an entry that is no origin."""
    found = set()
    for entry in filter(None, (part.strip() for part in listed.split(","))):
        origin = normal_origin(entry)
        if origin is None:
            raise ValueError(f"not an origin (scheme://host[:port]): {entry!r}")
        found.add(origin)
    return frozenset(found)


def origin_passes(given: Sequence[str], allowed: frozenset[str], allow_none: bool) -> bool:
    """Whether a handshake with these Origin headers may go on. Without one (no browser): only where configured."""
    if not given:
        return allow_none
    return len(given) == 1 and normal_origin(given[0]) in allowed


def bearer(offered: Sequence[str]) -> str | None:
    """The token among the subprotocols that a client offers; None where there is none."""
    return next((name[len(BEARER) :] for name in offered if name.startswith(BEARER)), None)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a connection belongs to, and until when (Unix seconds)."""

    user: str
    expires: float


def identify(token: str, secret: bytes, now: float) -> Identity:
    """The identity in a token. Raises Refused (unauthorized)."""
    try:
        claims = jwt.decode(token, secret, algorithms=[ALGORITHM], options=_CHECKS)
        user, expires = claims["sub"], float(claims["exp"])
        subjects.user_token(user)
    except (jwt.InvalidTokenError, BadSubject, ValueError, TypeError, AttributeError, OverflowError) as exc:
        raise Refused(Code.UNAUTHORIZED, "the token is not valid") from exc
    if not now < expires:
        raise Refused(Code.UNAUTHORIZED, "the token has expired")
    return Identity(user, expires)


def issue(user: str, secret: bytes, now: float, seconds: float) -> str:
    """A token, for the laptop and for tests."""
    claims = {"sub": user, "iat": int(now), "exp": int(now + seconds)}
    return jwt.encode(claims, secret, algorithm=ALGORITHM)
