"""The HTTP side of the scripted model: /v1/chat/completions (streamed or whole), /v1/models, /scripted/requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from tieline_ops.scripted_model import answers, script, validation
from tieline_ops.scripted_model.script import Script

_KEPT = 1_000


class ScriptedModel:
    """The server's state: its script, what it was asked, which streams are open."""

    def __init__(self, given: Script | None = None, *, pace: float = 0.0) -> None:
        self.script = given or Script()
        self.pace = (
            pace  # seconds between two pieces of an answer that the rules gave, so that people see it come
        )
        self.requests: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self.headers: deque[dict[str, str]] = deque(maxlen=_KEPT)
        self.refused: deque[str] = deque(maxlen=_KEPT)
        self.open_streams = 0
        self.left = 0  # streams that the client closed before their end
        self._asked = 0

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route(f"{base}{path}", endpoint, methods=[method])
                for base in ("", "/v1")
                for path, endpoint, method in (
                    ("/chat/completions", self._completions, "POST"),
                    ("/models", self._models, "GET"),
                    ("/scripted/requests", self._asked_for, "GET"),
                )
            ]
        )

    async def _models(self, _: Request) -> Response:
        model = {"id": answers.MODEL, "object": "model", "created": 0, "owned_by": "tieline"}
        return JSONResponse({"object": "list", "data": [model]})

    async def _asked_for(self, _: Request) -> Response:
        return JSONResponse({"requests": list(self.requests), "refused": list(self.refused)})

    async def _completions(self, request: Request) -> Response:
        try:
            body = json.loads(await request.body())
        except ValueError:
            return _refusal(400, "could not parse the JSON body of your request", None)
        if script.is_checked(self.script.peek()):
            try:
                validation.check(body)
            except validation.Invalid as exc:
                self.refused.append(str(exc))
                return _refusal(400, str(exc), "invalid_request_error")
        reply = self.script.next()
        self._asked += 1
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        pace = self.pace if reply is None else 0.0
        reply = reply if reply is not None else script.by_rules(answers.answer(body))
        if reply.get("status", 200) != 200:
            error = reply.get("error", {"message": "scripted"})
            return JSONResponse({"error": error}, reply["status"], headers=reply.get("headers"))
        acts = list(script.acts(reply.get("steps", []), body, self._asked))
        if not body.get("stream"):
            return JSONResponse(script.whole(acts, body["model"], self._asked))
        return _Stream(self, acts, reply.get("headers", {}), pace)


def _refusal(status: int, message: str, kind: str | None) -> Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": kind}
    return JSONResponse({"error": error}, status)


class _Stream(Response):
    """Performs the acts of one answer; ends early when the client goes."""

    def __init__(
        self, model: ScriptedModel, acts: list[script.Act], headers: dict[str, str], pace: float
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", **headers}, media_type="text/event-stream")
        del self.headers["content-length"]
        self._model = model
        self._acts = acts
        self._pace = pace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._model.open_streams += 1
        try:
            async with asyncio.TaskGroup() as group:
                work = group.create_task(self._perform(send), name="scripted answer")
                gone = group.create_task(_gone(receive), name="does the client go?")
                await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    self._model.left += 1
                work.cancel()
                gone.cancel()
        finally:
            self._model.open_streams -= 1

    async def _perform(self, send: Callable[[Message], Any]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for act in self._acts:
            match act:
                case script.Send(data):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                    await asyncio.sleep(self._pace)
                case script.Wait(seconds):
                    await (asyncio.Event().wait() if seconds is None else asyncio.sleep(seconds))
                case script.Comments(every):
                    while True:
                        comment = b": still here\n\n"
                        await send({"type": "http.response.body", "body": comment, "more_body": True})
                        await asyncio.sleep(every)
                case script.Cut():
                    return  # without the last body message: the server drops the connection
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@contextlib.asynccontextmanager
async def serving(model: ScriptedModel, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve; yields the base URL for clients. Port 0 means any free one."""
    config = uvicorn.Config(
        model.app, host=host, port=port, log_config=None, lifespan="off", access_log=False, ws="none"
    )
    server = _Embedded(config)
    task = asyncio.create_task(server.serve(), name="scripted model")
    try:
        while not server.started:
            if task.done():
                raise OSError(f"cannot serve the scripted model on {host}:{port}")
            await asyncio.sleep(0.005)
        bound = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{bound}/v1"
    finally:
        server.should_exit = True
        server.force_exit = True
        await asyncio.wait([task])


class _Embedded(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]  # signals belong to whoever embeds it
        yield
