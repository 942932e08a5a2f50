"""Pure: what is learnt of a system, and what is said of it: verdicts, as Nagios has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class State(IntEnum):
    """As Nagios has them."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


_BADNESS = {State.OK: 0, State.UNKNOWN: 1, State.WARNING: 2, State.CRITICAL: 3}


@dataclass(frozen=True, slots=True)
class Facts:
    """What was learnt of a system; None where it could not be."""

    rtt: float | None = None  # s
    unreachable: str = ""  # why NATS cannot be reached
    services: Sequence[Mapping[str, Any]] | None = None
    leases: Sequence[Mapping[str, Any]] | None = None
    sessions: Sequence[Mapping[str, Any]] | None = None
    threads: Sequence[Mapping[str, Any]] | None = None
    streams: Sequence[Mapping[str, Any]] | None = None
    gateway: float | None = None  # s until a client was let in
    gateway_error: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)  # the worst value of each, over all services
    scraped: int = 0  # services whose metrics were read


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said of one objective. `performance`: numbers for whoever draws them; `advice`: what to do."""

    objective: str
    state: State
    text: str
    performance: Mapping[str, float] = field(default_factory=dict)
    advice: str = ""


def worst(verdicts: Iterable[Verdict]) -> State:
    """The state of all together: critical before warning before unknown."""
    return max(
        (verdict.state for verdict in verdicts), key=lambda state: _BADNESS[state], default=State.UNKNOWN
    )


def line(verdict: Verdict) -> str:
    """As Nagios reads it: `STATE - objective: text | numbers`."""
    numbers = " ".join(f"{name}={value:g}" for name, value in verdict.performance.items())
    return f"{verdict.state.name} - {verdict.objective}: {verdict.text}" + (
        f" | {numbers}" if numbers else ""
    )


def graded(value: float, warning: float, critical: float) -> State:
    return State.CRITICAL if value >= critical else State.WARNING if value >= warning else State.OK
