"""What all connections of this gateway share."""

from __future__ import annotations

from dataclasses import dataclass

from tieline_protocol.bus import Bus

from tieline_gateway.broadcaster import SessionStreamBroadcaster
from tieline_gateway.callers import Callers
from tieline_gateway.config import Config
from tieline_gateway.leaving import Start
from tieline_gateway.remotes import Remotes
from tieline_gateway.requests import Requests


@dataclass(frozen=True, slots=True)
class Parts:
    """`start` runs a task that ends with the gateway, not with the socket that asked for it."""

    config: Config
    bus: Bus
    requests: Requests
    broadcaster: SessionStreamBroadcaster
    callers: Callers
    remotes: Remotes
    start: Start
