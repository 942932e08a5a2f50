"""Pure: remotes: registered, listed, called, answered (the names are the seed's)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from tieline_protocol.frontend.actions import Action, Empty, Name, Payload, Route
from tieline_protocol.remotes import LONGEST_TIMEOUT_MS


class ExternalRemote(Payload):
    """Where an external remote's functions run."""

    kind: Literal["http", "mcp"]
    url: Annotated[str, StringConstraints(min_length=1, max_length=2_048)]
    headers: dict[str, str] | None = None


class OfRemote(Payload):
    """Only the remote."""

    remotename: Name


class RemoteConnect(OfRemote):
    functions: Annotated[list[Any], Field(max_length=1_024)] | None = None  # each is checked by itself
    external: ExternalRemote | None = None

    @model_validator(mode="after")
    def _something(self) -> RemoteConnect:
        if self.functions is None and (self.external is None or self.external.kind != "mcp"):
            raise ValueError("functions: a list is required")  # an MCP server tells its own
        return self


class RemoteCall(OfRemote):
    function: Name
    args: dict[str, Any]
    timeout_ms: Annotated[int, Field(ge=1, le=LONGEST_TIMEOUT_MS)] | None = None


class OfCall(Payload):
    """Only the call."""

    requestId: Annotated[str, StringConstraints(min_length=1, max_length=140)]


class RemoteCallResult(OfCall):
    """One of the two; an error wins. Read by hand in the gateway: a result passes as the text that it is."""

    result: Any = None
    error: str | None = None
    code: str | None = None


class RemoteCallProgress(OfCall):
    message: Annotated[str, StringConstraints(max_length=16_384)] | None = None
    progress: float | None = None
    total: float | None = None


ACTIONS = (
    Action(
        "remote-connect",
        RemoteConnect,
        "{remotename, functions: [names], refused: [{name, error, pointer}]}",
        route=Route.GATEWAY,
        service="remotes",
        endpoint="connect",
        repeat=True,
        seconds=45,
    ),
    Action(
        "remote-disconnect",
        OfRemote,
        "{}",
        route=Route.GATEWAY,
        service="remotes",
        endpoint="disconnect",
        repeat=True,
        seconds=15,
    ),
    Action(
        "remote-list",
        Empty,
        "{remotes: [{remotename, functions, connected_at, external, mine}]}",
        route=Route.GATEWAY,
        service="remotes",
        endpoint="list",
        repeat=True,
        seconds=15,
    ),
    Action(
        "remote-call",
        RemoteCall,
        "{requestId}, then the notification remote-call-result {requestId, result} or {requestId, error, code}",
        route=Route.GATEWAY,
        seconds=15,
    ),
    Action("remote-call-result", RemoteCallResult, "{}", route=Route.GATEWAY, seconds=15),
    Action("remote-call-progress", RemoteCallProgress, "{}", route=Route.GATEWAY, seconds=15),
    Action("remote-call-cancel", OfCall, "{}", route=Route.GATEWAY, seconds=15),
)
