"""The registry at work: what connections expose, listed, resolved, looked up for a call; gone with their gateway."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from tieline_protocol import subjects
from tieline_protocol.bus import Bus
from tieline_protocol.errors import BadMessage, Code, Refused, Unavailable
from tieline_protocol.messages import Changed, Request, explain
from tieline_protocol.remotes import External, RemoteRecord

from tieline_remotes.directory import Directory, Registration
from tieline_remotes.external import Externals
from tieline_remotes.schema import check_arguments, check_functions, check_name

M = TypeVar("M", bound=BaseModel)


class Registry:
    """One replica's part of it: the bucket is shared, what is remembered of it is this replica's own."""

    def __init__(self, bus: Bus, externals: Externals) -> None:
        self._bus = bus
        self._externals = externals
        self._directory = Directory(bus)

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Hear what others write, until the block is left."""
        async with self._directory.following(self._bus):
            yield

    def __len__(self) -> int:
        """Registrations that are known without asking."""
        return len(self._directory)

    # Endpoints

    async def connect(self, request: Request) -> dict[str, Any]:
        """Register; the last registration of a name wins. Answers which functions were refused, and why."""
        payload = request.payload
        name = check_name(payload.get("remotename"))
        external = payload.get("external")
        functions = payload.get("functions", [])
        if not isinstance(functions, list):
            raise Refused(Code.BAD_REQUEST, "functions must be a list", details={"pointer": "/functions"})
        where: External | None = None
        if external is not None:
            where = _read(External, external)
            functions = await self._externals.connect(where, functions)
        good, refused = check_functions(functions)
        known = await self._directory.get(request.user, name)
        await self._directory.put(
            _read(
                RemoteRecord,
                {**payload, "user": request.user, "functions": tuple(good), "external": where},
            )
        )
        await self._changed(request.user, name, "added" if known is None else "updated")
        return {"remotename": name, "functions": [function.name for function in good], "refused": refused}

    async def disconnect(self, request: Request) -> dict[str, Any]:
        """Remove a connection's own registration; somebody else's is not found."""
        name = check_name(request.payload.get("remotename"))
        registration = await self._directory.get(request.user, name, fresh=True)
        mine = registration is not None and registration.record.connection == request.payload.get(
            "connection"
        )
        if registration is None or not mine or not await self._directory.remove(registration):
            raise Refused(Code.NOT_FOUND, f"you have no remote {name!r} here")
        await self._removed(registration)
        return {}

    async def list_remotes(self, request: Request) -> dict[str, Any]:
        """All remotes of the user, from the leader."""
        connection = request.payload.get("connection")
        found = await self._directory.of_user(request.user)
        return {"remotes": [registration.record.listed(connection) for registration in found]}

    async def resolve(self, request: Request) -> dict[str, Any]:
        """The functions of remotes by name, for whoever offers them to a model."""
        remotes, missing = [], []
        names = request.payload.get("names")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise Refused(Code.BAD_REQUEST, "names: a list of texts is required")
        for name in names:
            registration = await self._directory.get(request.user, name)
            if registration is None:
                missing.append(name)
            else:
                remotes.append(registration.record.listed())
        return {"remotes": remotes, "missing": missing}

    # For calls

    def known(
        self, user: str, name: Any, function: Any, args: Any
    ) -> tuple[Registration, str, dict[str, Any]] | None:
        """The same as `wanted`, at once, where memory has it and refuses nothing."""
        if not isinstance(name, str) or not isinstance(function, str):
            return None
        registration = self._directory.remembered(user, name)
        try:
            return _fitting(registration, name, function, args)
        except Refused:
            return None

    async def wanted(
        self, user: str, name: Any, function: Any, args: Any
    ) -> tuple[Registration, str, dict[str, Any]]:
        """Registration, function and arguments; what memory refuses is asked of the leader before it is refused."""
        if not isinstance(name, str) or not isinstance(function, str):
            raise Refused(Code.BAD_REQUEST, "remotename and function must be strings")
        registration = await self._directory.get(user, name)
        try:
            return _fitting(registration, name, function, args)
        except Refused:
            return await self.newest(user, name, function, args)

    async def newest(
        self, user: str, name: str, function: str, args: Any
    ) -> tuple[Registration, str, dict[str, Any]]:
        """The same, whatever memory says."""
        return _fitting(await self._directory.get(user, name, fresh=True), name, function, args)

    # Ends

    async def gateway_ended(self, gateway: str) -> None:
        """A gateway is gone, and what its connections exposed."""
        for registration in await self._directory.of_gateway(gateway):
            if await self._directory.remove(registration):
                await self._removed(registration)

    async def _removed(self, registration: Registration) -> None:
        record = registration.record
        await self._changed(record.user, record.remotename, "removed")

    async def _changed(self, user: str, name: str, change: str) -> None:
        message = Changed.model_validate({"what": "remote", "id": name, "change": change})
        with contextlib.suppress(Unavailable):
            await self._bus.publish(subjects.changed(user), message.encode())


def _read(model: type[M], value: Any) -> M:
    try:
        return model.model_validate(value)
    except ValidationError as exc:
        raise BadMessage(explain(exc)) from exc


def _fitting(
    registration: Registration | None, name: str, function: str, args: Any
) -> tuple[Registration, str, dict[str, Any]]:
    if registration is None:
        raise Refused(Code.NOT_FOUND, f"there is no remote {name!r}")
    if function not in registration.functions:
        raise Refused(Code.NOT_FOUND, f"the remote {name!r} has no function {function!r}")
    return registration, function, check_arguments(registration.validator(function), args)
