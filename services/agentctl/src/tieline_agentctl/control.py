"""The control server's routes: health, handshake, instances."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tieline_agentctl import clock
from tieline_agentctl.auth import Auth
from tieline_agentctl.gate import Gate
from tieline_agentctl.instance import Create
from tieline_agentctl.instances import CreateFailed, Instances
from tieline_agentctl.probes import PATHS, Probes
from tieline_agentctl.wall import now
from tieline_agentctl.web import BadRequest, answer, arguments, failure, route, router

EXEMPT = frozenset({"/health", "/auth/handshake", "/api/v1/health"}) | PATHS


def health_answer() -> Response:
    return answer({"status": "ok", "timestamp": clock.seconds(now())})


class Control:
    def __init__(self, instances: Instances, auth: Auth) -> None:
        self._instances = instances
        self._auth = auth

    def app(self) -> ASGIApp:
        routes = router(
            [
                route("GET", "/health", self.health),
                route("GET", "/api/v1/health", self.health),
                route("POST", "/auth/handshake", self.handshake),
                route("POST", "/api/v1/instances", self.create),
                route("GET", "/api/v1/instances", self.list),
                route("GET", "/api/v1/instances/{id}", self.get),
                route("DELETE", "/api/v1/instances/{id}", self.delete),
                route("GET", "/api/v1/debug/subprocess-admission", self.admission),
                *Probes(self._instances).routes(),
            ]
        )
        return Gate(routes, self._auth, EXEMPT)

    async def health(self, request: Request) -> Response:
        return health_answer()

    async def handshake(self, request: Request) -> Response:
        try:
            body: Any = orjson.loads(await request.body())
        except orjson.JSONDecodeError:
            body = None
        nonce = body.get("nonce") if isinstance(body, dict) else None
        if not isinstance(nonce, str) or not nonce.strip():
            return failure("missing or invalid nonce", 400)
        token = self._auth.handshake(nonce)
        if token is None:
            return failure("invalid or already-consumed nonce", 403)
        return answer({"token": token})

    async def create(self, request: Request) -> Response:
        try:
            wanted = await arguments(request, Create)
        except BadRequest as exc:
            raise BadRequest(str(exc).replace("invalid request:", "invalid request body:", 1)) from exc
        if not wanted.workspace_path:
            raise BadRequest("workspace_path is required")
        path = Path(wanted.workspace_path)
        try:
            if path.is_absolute() and path.parent.is_dir():
                path.mkdir(exist_ok=True)  # whoever asks may be on another machine
            usable = path.is_absolute() and path.is_dir()
        except OSError:
            usable = False
        if not usable:
            return failure(f"failed to create instance: not a directory: {wanted.workspace_path}", 500)
        if wanted.protocol not in ("", "acp"):
            return failure(f"failed to create instance: unsupported protocol: {wanted.protocol}", 500)
        try:
            instance = await self._instances.create(wanted)
        except CreateFailed as exc:
            return failure(f"failed to create instance: {exc}", 500)
        if await request.is_disconnected():
            await self._instances.delete(instance.id)
        return answer({"id": instance.id, "port": instance.port}, 201)

    async def list(self, request: Request) -> Response:
        return answer([instance.describe() for instance in self._instances.all()])

    async def get(self, request: Request) -> Response:
        instance = self._instances.get(request.path_params["id"])
        return answer(instance.describe()) if instance else failure("instance not found", 404)

    async def delete(self, request: Request) -> Response:
        # Goes on when the caller hangs up: half an instance helps nobody.
        if await asyncio.shield(self._instances.delete(request.path_params["id"])):
            return answer({"message": "instance stopped successfully"})
        return failure("instance not found", 404)

    async def admission(self, request: Request) -> Response:
        return answer({"pool": "none", "capacity": 0, "inflight": 0, "waiters": 0, "classes": {}})
