"""The knobs of the service, as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from tieline_protocol.bus import BusSettings
from tieline_protocol.lease import Terms

from tieline_remotes.addresses import Network


@dataclass(frozen=True, slots=True)
class Config:
    """How this replica runs. `drain` is how long calls under way may go on after SIGTERM, in seconds."""

    bus: BusSettings
    allowed: tuple[Network, ...] = ()
    drain: float = 20.0
    lease: Terms = field(default_factory=Terms)
    replicas: int = 1  # of streams
    declare: bool = True  # make streams and buckets, or wait until somebody has
