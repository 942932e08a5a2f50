"""Pure: what endpoints and commands must be given, checked before anything acts. Unknown fields are ignored."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError
from tieline_protocol import jsontext
from tieline_protocol.errors import Code, ProtocolError, Refused
from tieline_protocol.messages import explain

MAX_TITLE = 1_000
MAX_INSTRUCTIONS = 100_000
MAX_MESSAGE = 1024 * 1024  # bytes of one message and its resources, as JSON
MAX_RESOURCES = 64


class Payload(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Create(Payload):
    title: StrictStr = Field(default="", max_length=MAX_TITLE)
    model: StrictStr | None = Field(default=None, min_length=1, max_length=200)
    instructions: StrictStr = Field(default="", max_length=MAX_INSTRUCTIONS)


class List(Payload):
    after: StrictStr | None = None
    limit: StrictInt | None = Field(default=None, ge=1)


class Which(Payload):
    thread_id: StrictStr


class Rename(Which):
    title: StrictStr = Field(max_length=MAX_TITLE)


class Resource(BaseModel):
    """What comes with a message. Fields that we do not know belong to whoever wrote it, and stay."""

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: StrictStr
    subkind: StrictStr | None = None
    content: Any = None


class Message(Which):
    content: StrictStr
    resources: tuple[Resource, ...] = Field(default=(), max_length=MAX_RESOURCES)
    client_message_id: StrictStr | None = Field(default=None, min_length=1, max_length=256)

    def given(self) -> list[dict[str, Any]]:
        """The resources as they go into the log. Raises Refused where the message is too large for it."""
        given = [resource.model_dump(exclude_unset=True) for resource in self.resources]
        size = len(jsontext.dumps([self.content, given]))
        if size > MAX_MESSAGE:
            raise Refused(Code.TOO_LARGE, f"a message has at most {MAX_MESSAGE:,} bytes, this one {size:,}")
        return given


class Cancel(Which):
    run_id: StrictStr | None = None


P = TypeVar("P", bound=Payload)


def read(model: type[P], payload: dict[str, Any]) -> P:
    """A payload, checked; `null` counts as absent. Raises ProtocolError."""
    try:
        return model.model_validate({name: value for name, value in payload.items() if value is not None})
    except ValidationError as exc:
        raise ProtocolError(explain(exc)) from exc
