"""Pure: who somebody is, and sessions: opened, listed, watched."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tieline_protocol.frontend.actions import Action, Limit, Name, OfSession, Payload, Route, Title, said

Log = Literal["agent", "workspace"]


class Auth(Payload):
    token: Annotated[str, StringConstraints(min_length=1, max_length=16_384)]


class SessionOpen(Payload):
    executor: Annotated[Name, said("a name of the operator's; the first one by default")] | None = None
    workspace: (
        Annotated[
            str,
            StringConstraints(min_length=1, max_length=1_024),
            said("a path under the executor's root, made when absent, shared by all who name it"),
        ]
        | None
    ) = None
    agent: Annotated[Name, said("a name of the operator's; the first one by default")] | None = None
    title: Title | None = None
    remotes: (
        Annotated[list[Name], Field(max_length=128), said("whose functions the agent gets as tools")] | None
    ) = None


class SessionList(Payload):
    after: Annotated[str, StringConstraints(max_length=200)] | None = None
    limit: Limit | None = None


class SessionRename(OfSession):
    title: Title


class SessionSubscribe(OfSession):
    logs: Annotated[list[Log], Field(min_length=1, max_length=8)] | None = None
    cursors: (
        Annotated[dict[Log, str], said("by log: a cursor, `start`, `snapshot` or `now`, see Events")] | None
    ) = None


class SessionUnsubscribe(OfSession):
    logs: list[Log] | None = None


ACTIONS = (
    Action("auth", Auth, "{user_id, connection_id, protocol, limits}", route=Route.GATEWAY, seconds=5),
    Action(
        "session.open",
        SessionOpen,
        "{session_id, state}",
        route=Route.SERVICE,
        endpoint="open",
        repeat=True,  # the session's id follows from the request's
        seconds=65,
    ),
    Action(
        "session.list",
        SessionList,
        "{sessions: […], next?}",
        route=Route.SERVICE,
        endpoint="list",
        repeat=True,
        seconds=15,
    ),
    Action("session.close", OfSession, "{}", endpoint="close", repeat=True, seconds=30),
    Action(
        "session.get",
        OfSession,
        "the record, connection states, turn state",
        endpoint="get",
        repeat=True,
        seconds=15,
    ),
    Action("session.rename", SessionRename, "{}", endpoint="rename", repeat=True, seconds=15),
    Action(
        "session.subscribe",
        SessionSubscribe,
        "{logs: {log: {cursor, reset}}}, then events",
        route=Route.GATEWAY,
        seconds=30,
    ),
    Action("session.unsubscribe", SessionUnsubscribe, "{}", route=Route.GATEWAY, seconds=15),
)

# The state of a log in few events: the last event of each of these types is the whole state (Joining, `snapshot`).
VALUE_TYPES: dict[str, tuple[str, ...]] = {
    "agent": (
        "session",
        "connection",
        "agent_capabilities",
        "session_mode",
        "session_models",
        "session_info",
        "available_commands",
        "plan",
        "context_window",
        "turn",
        "permissions",
        "questions",
    ),
    "workspace": ("connection", "git_status", "processes"),
}
