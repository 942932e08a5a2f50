"""Pure: chat threads of the expert agent."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints

from tieline_protocol.frontend.actions import Action, MessageId, Name, Payload, Route, SessionId, Text, Title
from tieline_protocol.frontend.sessions import SessionList


class OfThread(Payload):
    """Only the thread."""

    thread_id: SessionId


class ThreadCreate(Payload):
    title: Title | None = None
    model: Name | None = None
    instructions: Annotated[str, StringConstraints(max_length=100_000)] | None = None


class ThreadRename(OfThread):
    title: Title


class Resource(Payload):
    """What comes with a message; a remote is `{kind: "system", subkind: "remote", content: its name}`."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    kind: Name
    subkind: Name | None = None
    content: Any = None


class ThreadMessage(OfThread):
    content: Text
    resources: Annotated[list[Resource], Field(max_length=256)] | None = None
    client_message_id: MessageId | None = None


class ThreadCancel(OfThread):
    run_id: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None


class ThreadSubscribe(OfThread):
    cursor: str | None = None


def _thread(name: str, payload: type[Payload], answer: str, **rest: Any) -> Action:
    facts = {"route": Route.SERVICE, "seconds": 15, "service": "agent", "named": "thread_id", **rest}
    return Action(f"thread.{name}", payload, answer, endpoint=name, **facts)


ACTIONS = (
    _thread("create", ThreadCreate, "{thread_id}"),
    _thread("list", SessionList, "{threads: […], next?}", repeat=True),
    _thread("get", OfThread, "the thread", repeat=True),
    _thread("rename", ThreadRename, "{}"),
    _thread("delete", OfThread, "{}"),
    _thread("message", ThreadMessage, "{message_id, run_id}", route=Route.OWNER, repeat=True, seconds=30),
    _thread("cancel", ThreadCancel, "{state}", route=Route.OWNER, repeat=True, seconds=30),
    Action(
        "thread.subscribe", ThreadSubscribe, "{cursor, reset}, then events", route=Route.GATEWAY, seconds=30
    ),
    Action("thread.unsubscribe", OfThread, "{}", route=Route.GATEWAY, seconds=15),
)
