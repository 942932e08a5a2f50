"""The obvious pipeline, what one writes first: each hop parses and dumps with pydantic, sends by nats-py, awaits it.

Two workers, `bench.obvious_streams` and `bench.obvious_gateway`, in place of the two services. It keeps nothing, has no
cursors, no flow control and no recovery: a run is small enough that no buffer in between overflows.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter

SUBJECT = "bench.obvious.events"


class AgentEvent(BaseModel):
    """What all events of the agent stream have."""

    session_id: str | None = None
    supports_image: bool = False
    supports_audio: bool = False
    supports_embedded_context: bool = False
    supports_prompt_queueing: bool = False


class MessageChunk(AgentEvent):
    type: Literal["message_chunk"]
    text: str = ""


class Reasoning(AgentEvent):
    type: Literal["reasoning"]
    reasoning_text: str = ""


class ToolCall(AgentEvent):
    type: Literal["tool_call"]
    tool_call_id: str
    tool_name: str = ""
    tool_title: str = ""
    tool_status: str = ""
    normalized: dict[str, Any] | None = None


class ToolUpdate(AgentEvent):
    type: Literal["tool_update"]
    tool_call_id: str
    tool_title: str = ""
    tool_status: str = ""
    normalized: dict[str, Any] | None = None


class Complete(AgentEvent):
    type: Literal["complete"]
    prompt_generation: int = 0
    data: dict[str, Any] | None = None


Event = Annotated[MessageChunk | Reasoning | ToolCall | ToolUpdate | Complete, Field(discriminator="type")]
EVENT: TypeAdapter[Event] = TypeAdapter(Event)


class Published(BaseModel):
    """What the first hop gives to the broker."""

    session_id: str
    log: str
    seq: int
    time: int
    event: Event


class Payload(BaseModel):
    session_id: str
    log: str
    cursor: str
    time: int
    event: Event


class Notification(BaseModel):
    """What a viewer receives."""

    type: Literal["notification"] = "notification"
    action: Literal["session.event"] = "session.event"
    payload: Payload
