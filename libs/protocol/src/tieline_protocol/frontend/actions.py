"""Pure: what an action is: what it carries, who answers it, whether it keeps its order, how long it may take.

The actions themselves stand by subject beside their payloads: sessions, agent, workspace, git, remotes, chat.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints


class Payload(BaseModel):
    """Base of what a request carries. Types are exact ("3" is no number); unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    def given(self) -> dict[str, Any]:
        """The fields that the client gave, without nulls."""
        return self.model_dump(exclude_unset=True, exclude_none=True)


class Empty(Payload):
    """Nothing."""


def said(description: str) -> Any:
    """What the reference says of a field."""
    return Field(description=description)


SessionId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Title = Annotated[str, StringConstraints(max_length=500)]
Text = Annotated[str, StringConstraints(min_length=1)]
Count = Annotated[int, Field(ge=0, le=2**31)]
Limit = Annotated[int, Field(ge=1, le=1_000)]
Repo = Annotated[
    str,
    said("the folder of one repository, where a workspace holds several; without it the workspace's own"),
]
MessageId = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200),
    said("minted by the client: a message that is sent again with it is not done twice"),
]


class OfSession(Payload):
    """Only the session."""

    session_id: SessionId


class Route(StrEnum):
    """Who answers."""

    GATEWAY = "gateway"
    SERVICE = "service"  # any replica of a service, `tieline.rpc.<service>.<endpoint>`
    OWNER = "owner"  # whoever owns the session or thread, `tieline.command.…`


@dataclass(frozen=True, slots=True)
class Action:
    """One action. `repeat`: one of unknown fate may go to a new owner (a read, what may be done twice, a prompt).

    `named` is the field that says which session or thread; `service` answers at `endpoint`, also where nobody owns it.
    """

    name: str
    payload: type[Payload]
    answer: str
    route: Route = Route.OWNER
    service: str = "streams"
    endpoint: str = ""
    named: str = "session_id"
    ordered: bool = False
    repeat: bool = False
    seconds: float = 60
