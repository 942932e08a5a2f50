"""Every knob of the service as a value."""

from __future__ import annotations

from dataclasses import dataclass, field

from tieline_protocol.bus import BusSettings
from tieline_protocol.lease import Terms

from tieline_agent.limits import Limits
from tieline_agent.model import ModelSettings

NO_KEY = "none"  # many endpoints of one's own want none, and the client wants some


@dataclass(frozen=True, slots=True)
class Config:
    """How this replica runs. Times in seconds, sizes in bytes."""

    nats: BusSettings
    model: ModelSettings
    limits: Limits = field(default_factory=Limits)
    instructions: str = ""  # of threads that have none of their own
    replicas: int = 1  # of streams
    declare: bool = True  # make streams and buckets, or wait until somebody has
    lease: Terms = field(default_factory=Terms)
    idle: float = 60.0  # a thread without anything to do is given up after
    drain: float = 20.0  # how long runs under way may go on after SIGTERM
    sweep: float = 10.0  # how often threads that nobody works on are looked for, beside being told of
    backlog_bytes: int = 1024 * 1024  # of one thread, not stored yet: above it the model is not read on
    event_bytes: int = 7 * 1024 * 1024
