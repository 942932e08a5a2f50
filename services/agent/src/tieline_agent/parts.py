"""What all threads of a process share."""

from __future__ import annotations

from dataclasses import dataclass

from tieline_protocol.bus import Bus
from tieline_protocol.jetstream import Bucket
from tieline_protocol.leases import ProcessLease

from tieline_agent.agent import Agent
from tieline_agent.config import Config
from tieline_agent.records import Records


class Lost(Exception):
    """This process does not own the thread any more, and must not say so either."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The logs of threads have a connection of their own."""

    config: Config
    bus: Bus
    log_bus: Bus
    records: Records
    owners: Bucket
    lease: ProcessLease
    agent: Agent
