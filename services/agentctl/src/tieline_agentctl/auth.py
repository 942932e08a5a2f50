"""Pure: the nonce handshake and the bearer token. One nonce, one token, one use."""

import hmac

MISSING = "missing or invalid Authorization header"
WRONG = "invalid auth token"


class Auth:
    """Who may call. Without a nonce there is no token and everybody on this machine may."""

    def __init__(self, nonce: str, token: str) -> None:
        self._nonce = nonce
        self.token = token

    def handshake(self, nonce: str) -> str | None:
        """The token, once, for the right nonce."""
        if not self._nonce or not hmac.compare_digest(nonce.encode(), self._nonce.encode()):
            return None
        self._nonce = ""
        return self.token

    def refusal(self, authorization: str) -> str | None:
        """Why a request with this `Authorization` header is refused; None when it is let in."""
        if not self.token:
            return None
        scheme, _, given = authorization.partition(" ")
        if scheme != "Bearer" or not given:
            return MISSING
        if not hmac.compare_digest(given.encode(errors="replace"), self.token.encode()):
            return WRONG
        return None
