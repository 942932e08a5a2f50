"""Every knob of the service as a value, and the operator's file of executors and agents."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from tieline_protocol import backpressure, jsontext
from tieline_protocol.agentctl import MAX_EVENT, MAX_FRAME
from tieline_protocol.agentctl_http import Spelling
from tieline_protocol.bus import BusSettings
from tieline_protocol.errors import BadMessage, Code, Refused
from tieline_protocol.lease import Terms
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


class TunnelExecutor(_Settings):
    """A control server on another machine, reached through a command that forwards a local port to one over there.

    In the command `{local}`, `{host}`, `{remote}` and `{session}` stand for the local port, the host and port as seen
    from over there, and the session's id.
    """

    kind: Literal["tunnel"]
    command: tuple[str, ...] = Field(min_length=1)
    host: str = "127.0.0.1"
    port: int = Field(39429, ge=1, le=65_535)
    token_file: Path | None = None
    root: PurePosixPath  # over there
    check_every: float = Field(5, gt=0)  # s; two checks in a row that fail start the command anew
    check_timeout: float = Field(5, gt=0)
    routes: Spelling = "field"

    @model_validator(mode="after")
    def _forwards(self) -> TunnelExecutor:
        for name in ("{local}", "{remote}"):
            if not any(name in word for word in self.command):
                raise ValueError(f"command: {name} is missing")
        if not self.root.is_absolute():
            raise ValueError("root: an absolute path is required")
        return self


class DockerExecutor(_Settings):
    """A container of the session's own, by the Engine's API. The workspace has the same path inside as outside."""

    kind: Literal["docker"]
    socket: Path = Path("/var/run/docker.sock")
    image: str = Field(min_length=1)
    command: tuple[str, ...] | None = None  # instead of the image's
    root: Path
    env: dict[str, str] = Field(default_factory=dict)
    user: str = ""
    network: str | None = None  # containers are reached by their address in it, else by published ports
    host_config: dict[str, Any] = Field(default_factory=dict)  # more of the Engine's: Memory, NanoCpus …
    port: int = Field(39429, ge=1, le=65_535)
    instance_port: int = Field(41001, ge=1, le=65_535)
    routes: Spelling = "field"


ExecutorSettings = Annotated[
    StaticExecutor | LocalExecutor | TunnelExecutor | DockerExecutor, Field(discriminator="kind")
]


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

    def executor(self, name: str | None) -> tuple[str, ExecutorSettings]:
        """Raises Refused (not_found)."""
        found: tuple[str, ExecutorSettings] = _named(self.executors, name, "executor")
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
    lease: Terms = field(default_factory=Terms)
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
    replicas: int = 1  # of streams
    declare: bool = True  # make streams and buckets, or wait until somebody has
