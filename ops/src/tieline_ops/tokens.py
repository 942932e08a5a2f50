"""Pure: tokens for a laptop. The gateway checks them; identity is the claim `sub`."""

from __future__ import annotations

import jwt

MONTH = 30 * 24 * 3600.0


def mint(secret: str, user: str, now: float, seconds: float = MONTH) -> str:
    """A signed token for a user, good for so many seconds from now (Unix time)."""
    return jwt.encode({"sub": user, "iat": int(now), "exp": int(now + seconds)}, secret, algorithm="HS256")
