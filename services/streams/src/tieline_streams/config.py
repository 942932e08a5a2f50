"""Every knob of the service as a value, and the operator's file of executors and agents."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tieline_protocol import backpressure, jsontext
from tieline_protocol.agentctl import MAX_EVENT, MAX_FRAME, Spelling
from tieline_protocol.bus import BusSettings
from tieline_protocol.errors import BadMessage, Code, Refused
from tieline_protocol.messages import explain

from tieline_streams import retry, turn


class BadConfig(Exception):
    """The service cannot start like this; the text says why."""


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StaticExecutor(_Settings):
    """A control server that somebody else runs."""

    kind: Literal["static"]
    control_url: str
    token_file: Path | None = None  # read again at each open: the daemon may have been started anew
    root: Path
    routes: Spelling = "field"


class LocalExecutor(_Settings):
    """A daemon of the session's own, started by us."""

    kind: Literal["local"]
    root: Path
    command: tuple[str, ...] = ("python", "-m", "tieline_agentctl")
    env: dict[str, str] = Field(default_factory=dict)
    state: Path | None = None  # where each daemon has a directory while its session lives
    routes: Spelling = "field"

    @property
    def directories(self) -> Path:
        return (self.state or self.root.parent / "tieline-agentctl").absolute()


ExecutorSettings = Annotated[StaticExecutor | LocalExecutor, Field(discriminator="kind")]


class AgentSettings(_Settings):
    """A coding agent. `env_from` names variables of our own environment that it gets too."""

    command: tuple[str, ...] = Field(min_length=1)
    env: dict[str, str] = Field(default_factory=dict)
    env_from: tuple[str, ...] = ()

    def environment(self) -> dict[str, str]:
        return {**{name: os.environ[name] for name in self.env_from if name in os.environ}, **self.env}


class Executors(_Settings):
    """What users may name; the first of each is the default."""

    executors: dict[str, ExecutorSettings] = Field(min_length=1)
    agents: dict[str, AgentSettings] = Field(min_length=1)

    def executor(self, name: str | None) -> tuple[str, StaticExecutor | LocalExecutor]:
        """Raises Refused (not_found)."""
        found: tuple[str, StaticExecutor | LocalExecutor] = _named(self.executors, name, "executor")
        return found

    def agent(self, name: str | None) -> tuple[str, AgentSettings]:
        """Raises Refused (not_found)."""
        found: tuple[str, AgentSettings] = _named(self.agents, name, "agent")
        return found


def _named(table: dict[str, Any], name: str | None, what: str) -> tuple[str, Any]:
    if name is None:
        return next(iter(table.items()))
    if name not in table:
        raise Refused(Code.NOT_FOUND, f"there is no {what} of that name; there are {', '.join(table)}")
    return name, table[name]


def load_executors(path: Path) -> Executors:
    """Raises BadConfig."""
    try:
        return Executors.model_validate(jsontext.loads(path.read_bytes()))
    except OSError as exc:
        raise BadConfig(f"{path}: {exc.strerror}") from exc
    except BadMessage as exc:
        raise BadConfig(f"{path}: {exc.message}") from exc
    except ValidationError as exc:
        raise BadConfig(f"{path}: {explain(exc)}") from exc


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds, sizes in bytes."""

    open: float = 60
    health: float = 10
    http: float = 60
    operation: float = 600
    operation_answer: float = 5
    dial: float = 3
    close_handshake: float = 0.5
    heartbeat: float = 4
    dead: float = 9
    healthy: float = retry.HEALTHY
    slow_retry: float = retry.SLOW
    agent_request: float = 30
    drain: float = 10
    sweep: float = 5
    turn: turn.Limits = field(default_factory=turn.Limits)
    event_bytes: int = MAX_EVENT
    frame_bytes: int = MAX_FRAME
    answer_bytes: int = 5 * 1024 * 1024
    backlog_bytes: int = backpressure.SESSION_BYTES
    process_bytes: int = backpressure.PROCESS_BYTES
    in_flight: int = 256


@dataclass(frozen=True, slots=True)
class Config:
    """What the service is started with."""

    nats: BusSettings
    executors: Executors
    limits: Limits = field(default_factory=Limits)
    workspace_bytes: int = 16 * 1024**3  # what the stream of workspace logs may take on disk
