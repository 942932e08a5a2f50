"""Pure: what commands and endpoints must be given, checked before anything acts. Unknown fields are ignored."""

from __future__ import annotations

import base64
import hashlib
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError
from tieline_protocol.errors import ProtocolError
from tieline_protocol.messages import Request, explain

MAX_TITLE = 1_000
MAX_SIZE = 10_000  # columns or rows: more is no terminal


class Payload(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Open(Payload):
    executor: StrictStr | None = None
    workspace: StrictStr | None = None
    agent: StrictStr | None = None
    title: StrictStr = Field(default="", max_length=MAX_TITLE)
    remotes: tuple[StrictStr, ...] = Field(default=(), max_length=64)


class List(Payload):
    after: StrictStr | None = None
    limit: StrictInt | None = Field(default=None, ge=1)


class Which(Payload):
    session_id: StrictStr


class Rename(Payload):
    title: StrictStr = Field(max_length=MAX_TITLE)


class Found(Payload):
    """Frames of each socket that came for an earlier owner, which could not use them."""

    agent: StrictInt = Field(default=0, ge=0)
    workspace: StrictInt = Field(default=0, ge=0)


class Prompt(Payload):
    text: StrictStr
    attachments: list[dict[str, Any]] | None = None
    client_message_id: StrictStr | None = Field(default=None, min_length=1, max_length=256)
    queue: StrictBool = False


class Respond(Payload):
    pending_id: StrictStr = Field(min_length=1)
    request_id: StrictStr | None = None
    option_id: StrictStr | None = None
    cancelled: StrictBool = False


class Answer(Payload):
    question_id: StrictStr = Field(min_length=1)
    answers: list[Any] | dict[str, Any] | None = None
    rejected: StrictBool = False
    reject_reason: StrictStr | None = None


class Input(Payload):
    data: StrictStr


class Resize(Payload):
    cols: StrictInt = Field(ge=1, le=MAX_SIZE)
    rows: StrictInt = Field(ge=1, le=MAX_SIZE)


P = TypeVar("P", bound=Payload)


def read(model: type[P], payload: dict[str, Any]) -> P:
    """A payload, checked. Raises ProtocolError."""
    try:
        return model.model_validate(payload)
    except ValidationError as exc:
        raise ProtocolError(explain(exc)) from exc


def session_of(request: Request) -> str:
    """The id of the session that a request opens: whoever hears it again can see whether it was carried out."""
    digest = hashlib.sha256(f"{request.user}\x00{request.id}".encode(errors="surrogatepass")).digest()
    return f"s{base64.urlsafe_b64encode(digest).decode()[:22]}"
