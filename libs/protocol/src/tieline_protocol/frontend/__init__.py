"""Pure: the frontend protocol, which clients are written against: frames, actions, what each carries.

`ACTIONS` is the one table: which payload an action has, who answers it, whether it keeps its order, how long it may
take. The reference that ships is generated from it. The subjects have a module each.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from tieline_protocol.errors import BadMessage, Code, Refused
from tieline_protocol.frontend import agent, chat, git, remotes, sessions, workspace
from tieline_protocol.frontend.actions import Action, Empty, Payload, Route
from tieline_protocol.frontend.chat import OfThread, ThreadSubscribe
from tieline_protocol.frontend.frames import (
    BadFrame,
    Frame,
    FrameId,
    call_result,
    error,
    notification,
    parse,
    response,
)
from tieline_protocol.frontend.remotes import (
    OfCall,
    OfRemote,
    RemoteCall,
    RemoteCallProgress,
    RemoteCallResult,
    RemoteConnect,
)
from tieline_protocol.frontend.sessions import VALUE_TYPES, Auth, SessionSubscribe, SessionUnsubscribe
from tieline_protocol.messages import explain

__all__ = [
    "ACTIONS",
    "FRAME_BYTES",
    "PROTOCOL",
    "RESULT_BYTES",
    "SUBPROTOCOL",
    "VALUE_TYPES",
    "Action",
    "Auth",
    "BadFrame",
    "Empty",
    "Frame",
    "FrameId",
    "OfCall",
    "OfRemote",
    "OfThread",
    "Payload",
    "RemoteCall",
    "RemoteCallProgress",
    "RemoteCallResult",
    "RemoteConnect",
    "Route",
    "SessionSubscribe",
    "SessionUnsubscribe",
    "ThreadSubscribe",
    "action",
    "call_result",
    "error",
    "notification",
    "parse",
    "payload",
    "response",
]

PROTOCOL = 1
SUBPROTOCOL = "tieline.v1"
FRAME_BYTES = 7 * 1024 * 1024
RESULT_BYTES = 5_000_000

ACTIONS: dict[str, Action] = {
    action.name: action
    for module in (sessions, agent, workspace, git, remotes, chat)
    for action in module.ACTIONS
}


def action(name: str) -> Action:
    """The entry of an action. Raises Refused (unknown_action)."""
    found = ACTIONS.get(name)
    if found is None:
        raise Refused(Code.UNKNOWN_ACTION, f"unknown action: {name!r:.80}")
    return found


def payload(action: Action, value: dict[str, Any]) -> Payload:
    """What an action carries. Raises BadMessage with the names of the fields that are wrong."""
    try:
        return action.payload.model_validate(value)
    except ValidationError as exc:
        raise BadMessage(explain(exc)) from exc
