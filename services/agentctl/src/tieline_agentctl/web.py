"""How a route reads its parameters and writes its answer. No route and no state lives here.

One handler serves both spellings of a route: parameters come from the query string of a GET or DELETE and from the
JSON body of anything else.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import orjson
import structlog
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import Receive, Scope, Send

from tieline_agentctl import tracing
from tieline_agentctl.jsons import dump

log = structlog.get_logger()

Handler = Callable[[Request], Awaitable[Response]]
READS = ("GET", "HEAD", "DELETE")


class BadRequest(Exception):
    """The caller's mistake: 400 with this text."""


class Args(BaseModel):
    """Parameters of a route. As in Go, `null` is the same as absent, and nothing else is coerced."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: item for name, item in value.items() if item is not None}
        return value


Wanted = TypeVar("Wanted", bound=Args)


def answer(body: Any, status: int = 200) -> Response:
    return Response(dump(body), status, media_type="application/json")


def failure(text: str, status: int) -> Response:
    return answer({"error": text}, status)


async def raw_body(request: Request, *, empty: bool = False) -> dict[str, Any]:
    """The JSON object in the body. An empty body is `EOF`, unless the route can do without."""
    data = await request.body()
    if not data.strip():
        if empty:
            return {}
        raise BadRequest("invalid request: EOF")
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as exc:
        raise BadRequest(f"invalid request: {exc}") from exc
    if not isinstance(found, dict):
        raise BadRequest("invalid request: not a JSON object")
    return found


async def arguments(request: Request, model: type[Wanted], *, empty: bool = False) -> Wanted:
    if request.method in READS:
        values: dict[str, Any] = {name: value for name, value in request.query_params.items() if value != ""}
        return validated(model, {**values, **request.path_params}, strict=False)
    return validated(model, {**await raw_body(request, empty=empty), **request.path_params})


def validated(model: type[Wanted], values: Any, *, strict: bool = True) -> Wanted:
    try:
        return model.model_validate(values, strict=strict)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "missing":
            raise BadRequest(f"{where} is required") from exc
        raise BadRequest(f"invalid request: {where}: {first['msg']}") from exc


class ExactRoute(Route):
    """A path with another method is an unknown path here: 404, never 405."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return (match, child) if match is Match.FULL else (Match.NONE, {})


def route(method: str, path: str, handler: Handler) -> ExactRoute:
    async def guarded(request: Request) -> Response:
        about = {"http.request.method": method, "http.route": path}
        parent = request.headers.get("traceparent")
        with tracing.work(f"{method} {path}", "server", parent, about) as doing:
            response = await answered(request)
            doing.set({"http.response.status_code": response.status_code})
            if response.status_code >= 500:
                doing.fail(str(response.status_code))
            return response

    async def answered(request: Request) -> Response:
        try:
            return await handler(request)
        except BadRequest as exc:
            return failure(str(exc), 400)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as exc:
            log.exception("a request failed", method=request.method, path=request.url.path)
            return failure(f"internal error: {exc}", 500)

    return ExactRoute(path, guarded, methods=[method])


def router(routes: list[BaseRoute]) -> Router:
    return Router(routes=routes, redirect_slashes=False, default=not_found)


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await reply(scope, receive, send, Response("404 page not found", 404, media_type="text/plain"))


async def reply(scope: Scope, receive: Receive, send: Send, response: Response) -> None:
    """The answer to a request, or to a WebSocket upgrade that is refused before it happens."""
    if scope["type"] != "websocket":
        await response(scope, receive, send)
        return
    headers = [(name, value) for name, value in response.raw_headers if name != b"content-length"]
    await send({"type": "websocket.http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": bytes(response.body), "more_body": False})
