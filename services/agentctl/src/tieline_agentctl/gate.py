"""What stands before every route: the token, the instance guard, and the count of requests in flight."""

import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tieline_agentctl import guard
from tieline_agentctl.auth import Auth
from tieline_agentctl.web import answer, failure, reply


class Activity:
    """Whether anybody uses an instance; the idle reaper asks."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.last = time.monotonic()

    def idle_for(self, now: float) -> float:
        return 0.0 if self.in_flight else now - self.last

    def __enter__(self) -> None:
        self.in_flight += 1

    def __exit__(self, *exc: object) -> None:
        self.in_flight -= 1
        self.last = time.monotonic()


class Gate:
    """An ASGI application around the routes. `exempt` paths need no token."""

    def __init__(
        self,
        app: ASGIApp,
        auth: Auth,
        exempt: frozenset[str],
        instance_id: str = "",
        activity: Activity | None = None,
    ) -> None:
        self._app = app
        self._auth = auth
        self._exempt = exempt
        self._instance_id = instance_id
        self._activity = activity or Activity()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        with self._activity:
            headers = Headers(scope=scope)
            if scope["path"] not in self._exempt:
                refused = self._auth.refusal(headers.get("authorization", ""))
                if refused is not None:
                    await reply(scope, receive, send, failure(refused, 401))
                    return
            if self._instance_id:
                other = guard.stranger(self._instance_id, headers.get(guard.HEADER, ""))
                if other is not None:
                    await reply(scope, receive, send, answer(other, 404))
                    return
            await self._app(scope, receive, send)
