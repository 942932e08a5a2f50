"""Pure: what a run hears (facts) and what it wants done (effects)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tieline_protocol.errors import Code

from tieline_agent.assembly import CallDelta, Finished, ReasoningDelta, TextDelta
from tieline_agent.events import Event
from tieline_agent.history import ChatMessage
from tieline_agent.results import Outcome


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """The request to the model ended without an answer."""

    code: Code
    message: str


@dataclass(frozen=True, slots=True)
class CallProgressed:
    """A tool tells how far it is: some of message, progress, total."""

    tool_call_id: str
    progress: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CallEnded:
    tool_call_id: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Somebody wants the run to end."""


@dataclass(frozen=True, slots=True)
class TimeUp:
    """`deadline` has passed."""


Fact = (
    TextDelta
    | ReasoningDelta
    | CallDelta
    | Finished
    | ModelFailed
    | CallProgressed
    | CallEnded
    | Cancelled
    | TimeUp
)


@dataclass(frozen=True, slots=True)
class Record:
    """Publish an event. With `confirm`, it and all before it stand in the log before anything else is done."""

    event: Event
    confirm: bool = False


@dataclass(frozen=True, slots=True)
class AskModel:
    messages: list[ChatMessage]


@dataclass(frozen=True, slots=True)
class StopModel:
    """Close the request to the model; none of its facts is wanted."""


@dataclass(frozen=True, slots=True)
class StartCall:
    tool_call_id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StopCalls:
    """Cancel the calls under way; none of their facts is wanted."""


@dataclass(frozen=True, slots=True)
class End:
    """Nothing is left to do."""


Effect = Record | AskModel | StopModel | StartCall | StopCalls | End


def confirmed(effects: list[Effect]) -> list[Effect]:
    """The same effects, where each event that something other than an event follows is confirmed before that."""
    marked = [
        replace(effect, confirm=True)
        if isinstance(effect, Record) and not isinstance(following, Record)
        else effect
        for effect, following in pairwise(effects)
    ]
    return marked + effects[-1:]
